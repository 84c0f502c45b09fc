package main

import (
	"sync"
	"time"
)

// keptCalls bounds the list of calls that is kept for a look at their order and times.
const keptCalls = 20000

// Call is one request.
type Call struct {
	Operation string `json:"operation"`
	// AtMS is when it arrived, in milliseconds since 1970.
	AtMS int64 `json:"atMs"`
	// Status that was answered: 0 while it is pending, and for good if the connection was closed instead.
	Status int `json:"status"`
}

// Counts of what arrived.
type Counts struct {
	mu                     sync.Mutex
	operations             map[string]int
	total                  int
	soapLogins, restLogins int
	bytesReceived          int64
	bytesSent              int64
	truncated              int
	calls                  []*Call
}

// CountsView is what the control address answers.
type CountsView struct {
	Total        int            `json:"total"`
	Operations   map[string]int `json:"operations"`
	SOAPLogins   int            `json:"soapLogins"`
	RESTLogins   int            `json:"restLogins"`
	SOAPSessions int            `json:"soapSessions"`
	RESTSessions int            `json:"restSessions"`
	PendingWaits int            `json:"pendingWaits"`
	// BytesReceived and BytesSent are those of bodies.
	BytesReceived int64 `json:"bytesReceived"`
	BytesSent     int64 `json:"bytesSent"`
	// Truncated answers to WaitForUpdatesEx: each asks for one more page.
	Truncated int `json:"truncated"`
}

// Reset starts counting from nothing.
func (c *Counts) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations, c.total, c.soapLogins, c.restLogins, c.calls = map[string]int{}, 0, 0, 0, nil
	c.bytesReceived, c.bytesSent, c.truncated = 0, 0, 0
}

// Arrived counts a call with a body of so many bytes, refused ones too.
func (c *Counts) Arrived(operation string, at time.Time, bytes int) *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations[operation]++
	c.total++
	c.bytesReceived += int64(bytes)
	call := &Call{Operation: operation, AtMS: at.UnixMilli()}
	if len(c.calls) < keptCalls {
		c.calls = append(c.calls, call)
	}
	return call
}

// Answered notes the status.
func (c *Counts) Answered(call *Call, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.Status = status
}

// Sent counts bytes of the body of an answer.
func (c *Counts) Sent(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytesSent += int64(bytes)
}

// Truncated counts an answer that is not the last page.
func (c *Counts) Truncated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.truncated++
}

// SOAPLogin counts a login that was accepted.
func (c *Counts) SOAPLogin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soapLogins++
}

// RESTLogin counts a login that was accepted.
func (c *Counts) RESTLogin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restLogins++
}

// View copies the counts.
func (c *Counts) View() CountsView {
	c.mu.Lock()
	defer c.mu.Unlock()
	operations := make(map[string]int, len(c.operations))
	for operation, count := range c.operations {
		operations[operation] = count
	}
	return CountsView{
		Total: c.total, Operations: operations, SOAPLogins: c.soapLogins, RESTLogins: c.restLogins,
		BytesReceived: c.bytesReceived, BytesSent: c.bytesSent, Truncated: c.truncated,
	}
}

// Calls copies the list of calls.
func (c *Counts) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := make([]Call, 0, len(c.calls))
	for _, call := range c.calls {
		calls = append(calls, *call)
	}
	return calls
}
