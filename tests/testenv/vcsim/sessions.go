package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Sessions knows who is logged in and which waits are pending.
type Sessions struct {
	vcenter *Vcenter
	mu      sync.Mutex
	rest    map[string]bool
	waits   map[*wait]bool
	// ended are the keys of SOAP sessions that were logged out. The simulator stores a session again at the begin of
	// each call, so a call beside the logout brings the session back; here it stays ended.
	ended map[string]bool
}

// wait is a pending WaitForUpdatesEx.
type wait struct {
	cookie    string
	collector string
	ended     chan struct{}
}

// NewSessions starts with none.
func NewSessions(vcenter *Vcenter) *Sessions {
	return &Sessions{vcenter: vcenter, rest: map[string]bool{}, waits: map[*wait]bool{}, ended: map[string]bool{}}
}

func (s *Sessions) restOpened(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest[id] = true
}

func (s *Sessions) restClosed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rest, id)
}

// logout ends a SOAP session and its pending waits, which the simulator would leave pending. The session ends first, so
// that a wait that begins meanwhile is either pending here or finds the session ended.
func (s *Sessions) logout(r *http.Request) {
	if cookie, err := r.Cookie(soap.SessionCookieName); err == nil {
		s.mu.Lock()
		s.ended[cookie.Value] = true
		s.mu.Unlock()
	}
	s.cancelAll(func(entry *wait) bool { return entry.cookie == r.Header.Get("Cookie") })
}

// isLoggedOut says whether the call comes after the logout of its session.
func (s *Sessions) isLoggedOut(r *http.Request) bool {
	cookie, err := r.Cookie(soap.SessionCookieName)
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.ended[cookie.Value]
}

var collectorOf = regexp.MustCompile(`<(?:[\w.-]+:)?_this[^>]*>([^<]+)<`)

// waiting notes a pending wait. The simulator does not notice that a client went away, and would give the next
// changes to the dead wait instead of to the client's next one: so a wait ends with its connection.
func (s *Sessions) waiting(r *http.Request, body []byte) (done func()) {
	entry := &wait{cookie: r.Header.Get("Cookie"), ended: make(chan struct{})}
	if found := collectorOf.FindSubmatch(body); found != nil {
		entry.collector = string(found[1])
	}
	s.mu.Lock()
	s.waits[entry] = true
	s.mu.Unlock()
	go func() {
		select {
		case <-r.Context().Done():
			// Done is also the context of a call that was answered; cancelling then would hit the next wait.
			select {
			case <-entry.ended:
			default:
				s.cancel(entry)
			}
		case <-entry.ended:
		}
	}()
	return func() {
		close(entry.ended)
		s.mu.Lock()
		delete(s.waits, entry)
		s.mu.Unlock()
	}
}

// cancel ends a wait with RequestCanceled. The simulator forgets a cancellation that comes before its wait has begun.
func (s *Sessions) cancel(entry *wait) {
	for range 100 {
		s.cancelOnce(entry)
		select {
		case <-entry.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Sessions) cancelOnce(entry *wait) {
	request := httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(
		`<?xml version="1.0"?><e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>`+
			`<CancelWaitForUpdates xmlns="urn:vim25"><_this type="PropertyCollector">`+entry.collector+
			`</_this></CancelWaitForUpdates></e:Body></e:Envelope>`))
	request.Header.Set("Cookie", entry.cookie)
	s.vcenter.Handler.ServeHTTP(httptest.NewRecorder(), request)
}

// cancelAll ends these pending waits.
func (s *Sessions) cancelAll(includes func(*wait) bool) {
	s.mu.Lock()
	pending := make([]*wait, 0, len(s.waits))
	for entry := range s.waits {
		if includes(entry) {
			pending = append(pending, entry)
		}
	}
	s.mu.Unlock()
	for _, entry := range pending {
		s.cancel(entry)
	}
}

// control is a session of the simulator that no client sees; it can read and end the others.
func (s *Sessions) control() (*simulator.Context, *simulator.SessionManager) {
	ctx := s.vcenter.context()
	ctx.Session = &simulator.Session{
		UserSession: types.UserSession{Key: "control"},
		Registry:    simulator.NewRegistry(),
		Map:         ctx.Map,
	}
	manager := ctx.Session.Get(ctx.Map.SessionManager().Reference()).(*simulator.SessionManager)
	return ctx, manager
}

// SOAP gives the keys of the live SOAP sessions.
func (s *Sessions) SOAP() []string {
	_, manager := s.control()
	keys := make([]string, 0, len(manager.SessionList))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range manager.SessionList {
		if !s.ended[session.Key] {
			keys = append(keys, session.Key)
		}
	}
	return keys
}

// Numbers of live SOAP and REST sessions and of pending waits.
func (s *Sessions) Numbers() (soap, rest, waits int) {
	soap = len(s.SOAP())
	s.mu.Lock()
	defer s.mu.Unlock()
	return soap, len(s.rest), len(s.waits)
}

// KillSOAP ends every SOAP session. Their pending waits end with RequestCanceled, as when a real server ends a session.
func (s *Sessions) KillSOAP() {
	s.cancelAll(func(*wait) bool { return true })
	ctx, manager := s.control()
	manager.TerminateSession(ctx, &types.TerminateSession{SessionId: s.SOAP()})
}

// KillREST ends every REST session.
func (s *Sessions) KillREST() {
	s.mu.Lock()
	ids := s.rest
	s.rest = map[string]bool{}
	s.mu.Unlock()
	for id := range ids {
		s.vcenter.tags.endSession(id)
	}
}
