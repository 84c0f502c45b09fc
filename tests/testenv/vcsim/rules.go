package main

import (
	"fmt"
	"strings"
	"sync"
)

// Rule says what happens to a named operation instead of, or before, being served. Exactly one of Fault, Status,
// Hang, Drop and Cut is given, or none with a delay alone.
type Rule struct {
	// Operation as it is counted; "*" is every operation.
	Operation string `json:"operation"`
	// Contains limits the rule to requests whose body contains this text.
	Contains string `json:"contains"`
	DelayMS  int    `json:"delayMs"`
	// Fault answers with this SOAP fault type; Detail is the XML inside it.
	Fault  string `json:"fault"`
	Detail string `json:"detail"`
	// Status answers with this HTTP status, and Body as HTML.
	Status int    `json:"status"`
	Body   string `json:"body"`
	// Hang answers nothing until the rule is cleared.
	Hang bool `json:"hang"`
	// Drop closes the connection without an answer and without serving; Cut serves, and closes it half-way through the answer.
	Drop bool `json:"drop"`
	Cut  bool `json:"cut"`
	// Skip lets that many calls through first; Times limits how often the rule applies (0: until cleared).
	Skip  int `json:"skip"`
	Times int `json:"times"`

	applied int
	cleared chan struct{}
}

// Rules in force. The first that matches applies.
type Rules struct {
	mu    sync.Mutex
	rules []*Rule
}

// Add puts the rule in force.
func (r *Rules) Add(rule Rule) error {
	if rule.Operation == "" {
		return fmt.Errorf("a rule needs an operation, or \"*\"")
	}
	rule.cleared = make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, &rule)
	return nil
}

// Clear ends the rules of the operation, or all of them without one. Calls that hang are released.
func (r *Rules) Clear(operation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*Rule
	for _, rule := range r.rules {
		if operation == "" || rule.Operation == operation {
			close(rule.cleared)
		} else {
			kept = append(kept, rule)
		}
	}
	r.rules = kept
}

// match gives the rule for this call, if there is one, and counts it as applied.
func (r *Rules) match(operation string, body []byte) *Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.rules {
		if rule.Operation != "*" && rule.Operation != operation {
			continue
		}
		if rule.Contains != "" && !strings.Contains(string(body), rule.Contains) {
			continue
		}
		if rule.Skip > 0 {
			rule.Skip--
			continue
		}
		if rule.Times > 0 && rule.applied >= rule.Times {
			continue
		}
		rule.applied++
		return rule
	}
	return nil
}

// faultEnvelope is the answer with a SOAP fault of this type.
func faultEnvelope(kind, detail, text string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>` +
		escapeText(text) + `</faultstring><detail><` +
		kind + `Fault xmlns="urn:vim25" xsi:type="` + kind + `">` + detail + `</` + kind + `Fault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`
}
