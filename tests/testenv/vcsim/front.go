package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/ssoadmin"
	"github.com/vmware/govmomi/sts"
)

// maxBody is far above any request a client of ours sends.
const maxBody = 16 << 20

// Front is the HTTPS server that clients talk to. It names, counts, delays and breaks each call before the
// simulator sees it.
type Front struct {
	Port   int
	Rules  Rules
	Counts Counts

	vcenter  *Vcenter
	identity *Identity
	tokens   *Tokens
	sessions *Sessions
	leaves   *Leaves
	delay    atomic.Int64

	mu     sync.Mutex
	server *http.Server
}

// NewFront opens the server on a loopback port of its own choosing.
func NewFront(vcenter *Vcenter, identity *Identity, tokens *Tokens) (*Front, error) {
	f := &Front{vcenter: vcenter, identity: identity, tokens: tokens, sessions: NewSessions(vcenter), leaves: NewLeaves(vcenter)}
	f.Counts.Reset()
	var err error
	// Below the range from which the system hands out ports, so that nobody else is given this one while
	// the test has the simulator stop listening.
	for range 100 {
		f.Port = 20000 + rand.Intn(12000)
		if err = f.Listen(); err == nil {
			return f, nil
		}
	}
	return nil, err
}

// Listen opens the port (again).
func (f *Front) Listen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", f.Port))
	if err != nil {
		return err
	}
	f.server = &http.Server{
		Handler:           f,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{f.identity.Certificate}, NextProtos: []string{"http/1.1"}},
		// As vcsim: HTTP/1.1 only.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	go func(server *http.Server) { _ = server.ServeTLS(listener, "", "") }(f.server)
	return nil
}

// Stop closes the port and every connection: the vCenter is down. Sessions survive.
func (f *Front) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		_ = f.server.Close()
		f.server = nil
	}
}

// stsPath is where every vCenter has its token service.
const stsPath = "/sts/STSService"

var soapMethod = regexp.MustCompile(`<(?:[\w.-]+:)?Body[^>]*>\s*<(?:[\w.-]+:)?([A-Za-z_]+)`)

// operationOf names a call: the SOAP method, or "REST:" and a stable name.
func operationOf(r *http.Request, body []byte) string {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/sdk") && r.Method == http.MethodPost:
		if found := soapMethod.FindSubmatch(body); found != nil {
			return string(found[1])
		}
		return "SOAP:unreadable"
	case path == stsPath && r.Method == http.MethodPost:
		return "STS:Issue"
	case strings.HasSuffix(path, "ServiceVersions.xml"):
		return "GET:" + path[strings.LastIndex(path, "/")+1:]
	case strings.HasPrefix(path, "/rest") || strings.HasPrefix(path, "/api"):
		return "REST:" + restOperation(r, path)
	}
	return r.Method + ":" + path
}

func restOperation(r *http.Request, path string) string {
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodDelete: "delete", http.MethodPatch: "update"}[r.Method]
	action := r.URL.Query().Get("~action")
	if action == "" {
		action = r.URL.Query().Get("action")
	}
	if strings.HasSuffix(path, "/session") {
		switch {
		case action != "":
			return "session-" + action
		case r.Method == http.MethodPost:
			return "session-login"
		case r.Method == http.MethodDelete:
			return "session-logout"
		}
		return "session-get"
	}
	if action != "" {
		return action
	}
	for _, kind := range []string{"category", "tag"} {
		if strings.HasSuffix(path, "/tagging/"+kind) && r.Method == http.MethodGet {
			return map[string]string{"category": "list-categories", "tag": "list-tags"}[kind]
		}
		if strings.Contains(path, "/tagging/"+kind) {
			return verb + "-" + kind
		}
	}
	return verb + ":" + path
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request too large", http.StatusRequestEntityTooLarge)
		return
	}
	operation := operationOf(r, body)
	call := f.Counts.Arrived(operation, arrived, len(body))
	status := f.serve(&counted{w, &f.Counts}, r, operation, body)
	f.Counts.Answered(call, status)
}

// counted counts the bytes of an answer as they are sent: cut ones and refusals, too.
type counted struct {
	http.ResponseWriter
	counts *Counts
}

// Write implements http.ResponseWriter.
func (w *counted) Write(body []byte) (int, error) {
	sent, err := w.ResponseWriter.Write(body)
	w.counts.Sent(sent)
	return sent, err
}

// Flush implements http.Flusher.
func (w *counted) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// serve gives the status that was answered; 0 if the connection was closed instead.
func (f *Front) serve(w http.ResponseWriter, r *http.Request, operation string, body []byte) int {
	if !pause(r.Context(), time.Duration(f.delay.Load())*time.Millisecond) {
		return 0
	}
	rule := f.Rules.match(operation, body)
	if rule == nil {
		return f.pass(w, r, operation, body)
	}
	if !pause(r.Context(), time.Duration(rule.DelayMS)*time.Millisecond) {
		return 0
	}
	switch {
	case rule.Hang:
		select {
		case <-rule.cleared:
		case <-r.Context().Done():
			return 0
		}
	case rule.Drop:
		panic(http.ErrAbortHandler)
	case rule.Cut:
		f.cut(w, r, operation, body)
		return 0
	case rule.Fault != "":
		w.Header().Set("Content-Type", "text/xml; charset=utf-8")
		return write(w, http.StatusInternalServerError, faultEnvelope(rule.Fault, rule.Detail, ""))
	case rule.Status != 0:
		w.Header().Set("Content-Type", "text/html")
		return write(w, rule.Status, rule.Body)
	}
	return f.pass(w, r, operation, body)
}

func write(w http.ResponseWriter, status int, body string) int {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return status
}

// pause waits; false says that the client went away meanwhile.
func pause(ctx context.Context, duration time.Duration) bool {
	if duration <= 0 {
		return true
	}
	select {
	case <-time.After(duration):
		return true
	case <-ctx.Done():
		return false
	}
}

// pass lets the simulator serve the call, and keeps account of sessions and pending waits.
func (f *Front) pass(w http.ResponseWriter, r *http.Request, operation string, body []byte) int {
	if operation == "GET:vimServiceVersions.xml" {
		w.Header().Set("Content-Type", "text/xml")
		return write(w, http.StatusOK, versions(f.vcenter.APIVersion))
	}
	if status, served := f.serveToken(w, r, operation, body); served {
		return status
	}
	f.borrow(r, operation)
	answer := f.record(r, operation, body)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	if strings.HasPrefix(r.URL.Path, "/sdk") {
		w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
	return answer.Code
}

// serveToken serves the token service, and refuses logins with a token that are not signed as they must be; what is
// signed well goes on to the simulator, which takes any token. A request with a user name and a password (govc sso.…)
// goes on to the simulator, too: its token is good for the administration of single sign-on and nothing else.
func (f *Front) serveToken(w http.ResponseWriter, r *http.Request, operation string, body []byte) (status int, served bool) {
	isSigned := strings.HasPrefix(r.Header.Get("Authorization"), "SIGN ")
	switch {
	case operation == "STS:Issue" && f.vcenter.acceptsPasswordOf(body):
		return 0, false
	case operation == "STS:Issue":
		w.Header().Set("Content-Type", "text/xml; charset=utf-8")
		answer, fault := f.tokens.Issue(r, body)
		if fault != nil {
			return write(w, http.StatusInternalServerError, stsFaultEnvelope(fault)), true
		}
		return write(w, http.StatusOK, answer), true
	case operation == "LoginByToken":
		if err := f.tokens.Login(body); err != nil {
			w.Header().Set("Content-Type", "text/xml; charset=utf-8")
			return write(w, http.StatusInternalServerError, faultEnvelope("InvalidLogin", "", err.Error())), true
		}
	case operation == "REST:session-login" && isSigned:
		if err := f.tokens.LoginREST(r, body); err != nil {
			w.Header().Set("Content-Type", "application/json")
			text, _ := json.Marshal(map[string]any{"type": "com.vmware.vapi.std.errors.unauthenticated",
				"value": map[string]any{"messages": []map[string]string{{"id": "vcsim.signature", "default_message": err.Error()}}}})
			return write(w, http.StatusUnauthorized, string(text)), true
		}
	}
	return 0, false
}

// borrow lets a REST call with a live SOAP session's secret through, in the scenario's own REST session. Ending that
// one is not the client's.
func (f *Front) borrow(r *http.Request, operation string) {
	id := r.Header.Get(restSessionID)
	if f.vcenter.SharesSessions && id != "" && operation != "REST:session-logout" && slices.Contains(f.sessions.SOAP(), id) {
		r.Header.Set(restSessionID, f.vcenter.tags.session)
	}
}

// systemPaths are where the simulator has what clients without a lookup service look for at the usual paths.
var systemPaths = map[string]string{stsPath: sts.SystemPath, ssoadmin.Path: ssoadmin.SystemPath}

var truncatedAnswer = []byte("<truncated>true</truncated>")

func (f *Front) record(r *http.Request, operation string, body []byte) *httptest.ResponseRecorder {
	inner := r.Clone(context.Background())
	if path, ok := systemPaths[inner.URL.Path]; ok {
		inner.URL.Path = path
	}
	inner.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	if operation == "WaitForUpdatesEx" || operation == "WaitForUpdates" {
		done := f.sessions.waiting(r, body)
		defer done()
	}
	// After the wait is noted: see logout.
	if f.sessions.isLoggedOut(r) {
		inner.Header.Del("Cookie")
	}
	if operation == "Logout" {
		f.sessions.logout(r)
	}
	f.vcenter.Handler.ServeHTTP(answer, inner)
	if answer.Code == http.StatusOK {
		switch operation {
		case "WaitForUpdatesEx":
			answer.Body = bytes.NewBuffer(f.leaves.Complete(body, answer.Body.Bytes()))
			answer.Header().Del("Content-Length")
			if bytes.Contains(answer.Body.Bytes(), truncatedAnswer) {
				f.Counts.Truncated()
			}
		case "Login", "LoginByToken":
			f.Counts.SOAPLogin()
		case "REST:session-login":
			var login struct {
				Value string `json:"value"`
			}
			if json.Unmarshal(answer.Body.Bytes(), &login) == nil && login.Value != "" {
				f.Counts.RESTLogin()
				f.sessions.restOpened(login.Value)
			}
		case "REST:session-logout":
			f.sessions.restClosed(restID(r))
		}
	}
	return answer
}

func restID(r *http.Request) string {
	if id := r.Header.Get(restSessionID); id != "" {
		return id
	}
	if cookie, err := r.Cookie(restSessionID); err == nil {
		return cookie.Value
	}
	return ""
}

// cut serves the call, announces its whole length, and closes the connection after half of it.
func (f *Front) cut(w http.ResponseWriter, r *http.Request, operation string, body []byte) {
	answer := f.record(r, operation, body)
	whole := answer.Body.Bytes()
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(whole[:len(whole)/2])
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	panic(http.ErrAbortHandler)
}

// versions is the list a real server of this version gives; the simulator's ends at 6.0.
func versions(current string) string {
	var prior strings.Builder
	known := []string{"9.1.0.0", "9.0.0.0", "8.0.3.0", "8.0.2.0", "8.0.1.0", "8.0.0.0", "7.0.3.0", "7.0.2.0", "7.0.1.0", "7.0.0.0", "6.7.3", "6.7.2", "6.7.1", "6.7", "6.5", "6.0"}
	older := false
	for _, version := range known {
		if older {
			prior.WriteString("<version>" + version + "</version>")
		}
		older = older || version == current
	}
	return `<?xml version="1.0" encoding="UTF-8"?><namespaces version="1.0"><namespace><name>urn:vim25</name><version>` +
		current + `</version><priorVersions>` + prior.String() + `</priorVersions></namespace></namespaces>`
}
