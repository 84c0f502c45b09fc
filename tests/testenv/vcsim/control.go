package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
)

// control is the plain HTTP address, on loopback, through which a test changes the world. Each verb takes a JSON
// object by POST and answers 200, or 400 with a sentence.
type control struct {
	vcenter *Vcenter
	front   *Front
}

// NewControl opens the control address and gives its URL.
func NewControl(vcenter *Vcenter, front *Front) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	c := &control{vcenter: vcenter, front: front}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /vm/create", verb(func(in VM) (any, error) { return nil, vcenter.CreateVM(&in) }))
	mux.HandleFunc("POST /vm/change", verb(func(in vmChange) (any, error) { return nil, vcenter.ChangeVM(in.VM, &in.Change) }))
	mux.HandleFunc("POST /vm/remove", verb(func(in vmChange) (any, error) { return nil, vcenter.RemoveVM(in.VM) }))
	mux.HandleFunc("POST /object", verb(c.object))
	mux.HandleFunc("POST /tag/create", verb(func(in Tag) (any, error) { return nil, vcenter.CreateTag(in) }))
	mux.HandleFunc("POST /tag/attach", verb(func(in tagChange) (any, error) {
		return nil, vcenter.Attach(in.Category, in.Name, in.Object, true)
	}))
	mux.HandleFunc("POST /tag/detach", verb(func(in tagChange) (any, error) {
		return nil, vcenter.Attach(in.Category, in.Name, in.Object, false)
	}))
	mux.HandleFunc("POST /tag/rename", verb(func(in tagChange) (any, error) {
		return nil, vcenter.tags.rename(in.Category, in.Name, in.To)
	}))
	mux.HandleFunc("POST /tag/delete", verb(func(in tagChange) (any, error) {
		return nil, vcenter.tags.delete(in.Category, in.Name)
	}))
	mux.HandleFunc("POST /sessions/kill", verb(c.kill))
	mux.HandleFunc("POST /login", verb(func(in login) (any, error) { vcenter.SetLogin(in.User, in.Password); return nil, nil }))
	mux.HandleFunc("POST /rules/add", verb(func(in Rule) (any, error) { return nil, front.Rules.Add(in) }))
	mux.HandleFunc("POST /rules/clear", verb(func(in Rule) (any, error) { front.Rules.Clear(in.Operation); return nil, nil }))
	mux.HandleFunc("POST /delay", verb(func(in Rule) (any, error) { front.delay.Store(int64(in.DelayMS)); return nil, nil }))
	mux.HandleFunc("POST /counts", verb(c.counts))
	mux.HandleFunc("POST /counts/reset", verb(func(struct{}) (any, error) { front.Counts.Reset(); return nil, nil }))
	mux.HandleFunc("POST /calls", verb(func(struct{}) (any, error) { return front.Counts.Calls(), nil }))
	mux.HandleFunc("POST /listen/stop", verb(func(struct{}) (any, error) { front.Stop(); return nil, nil }))
	mux.HandleFunc("POST /listen/start", verb(func(struct{}) (any, error) { return nil, front.Listen() }))
	go func() { _ = http.Serve(listener, mux) }()
	return "http://" + listener.Addr().String(), nil
}

type vmChange struct {
	// VM is a name, a BIOS UUID or a managed-object id.
	VM     string `json:"vm"`
	Change VM     `json:"change"`
}

type tagChange struct {
	Category string `json:"category"`
	Name     string `json:"name"`
	To       string `json:"to"`
	Object   Object `json:"object"`
}

type login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

type kill struct {
	SOAP bool `json:"soap"`
	REST bool `json:"rest"`
}

func (c *control) object(in Object) (any, error) {
	ref, err := c.vcenter.Find(in)
	return ref.Value, err
}

func (c *control) kill(in kill) (any, error) {
	if in.SOAP {
		c.front.sessions.KillSOAP()
	}
	if in.REST {
		c.front.sessions.KillREST()
	}
	return nil, nil
}

func (c *control) counts(struct{}) (any, error) {
	view := c.front.Counts.View()
	view.SOAPSessions, view.RESTSessions, view.PendingWaits = c.front.sessions.Numbers()
	return view, nil
}

// verb makes a handler of a function from a JSON object to a JSON value. A panic of the simulator is an answer,
// not the end of the process.
func verb[T any](run func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if trouble := recover(); trouble != nil {
				http.Error(w, fmt.Sprint("the simulator panicked: ", trouble), http.StatusInternalServerError)
			}
		}()
		var in T
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := run(in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	}
}
