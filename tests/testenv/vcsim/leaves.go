package main

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/vmware/govmomi/vim25/types"
)

// Leaves adds what the simulator loses: when a ListView changes within 20 ms of the removal of a machine, it forgets
// what it has sent and starts anew, and with that the machine of which it had to say that it left. A real vCenter
// always says it, and a client that was not told would keep the machine for ever.
type Leaves struct {
	vcenter *Vcenter
	mu      sync.Mutex
	// Machines that a collector's client knows of.
	known map[string]map[string]bool
}

// NewLeaves starts with no collector.
func NewLeaves(vcenter *Vcenter) *Leaves {
	return &Leaves{vcenter: vcenter, known: map[string]map[string]bool{}}
}

var (
	firstVersion   = regexp.MustCompile(`<(?:[\w.-]+:)?version\s*/>|<(?:[\w.-]+:)?version></`)
	machineUpdates = regexp.MustCompile(`<kind>(\w+)</kind><obj [^>]*type="VirtualMachine"[^>]*>([^<]+)</obj>`)
	endOfFilter    = []byte(`</filterSet>`)
)

// Complete gives the answer to a WaitForUpdatesEx with the leaves that are missing in it.
func (l *Leaves) Complete(request, answer []byte) []byte {
	found := collectorOf.FindSubmatch(request)
	end := bytes.Index(answer, endOfFilter)
	if found == nil || end < 0 {
		return answer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	collector := string(found[1])
	known := l.known[collector]
	if known == nil || firstVersion.Match(request) {
		known = map[string]bool{}
		l.known[collector] = known
	}
	for _, update := range machineUpdates.FindAllSubmatch(answer, -1) {
		if string(update[1]) == string(types.ObjectUpdateKindLeave) {
			delete(known, string(update[2]))
		} else {
			known[string(update[2])] = true
		}
	}
	var lost bytes.Buffer
	registry := l.vcenter.context().Map
	for id := range known {
		if registry.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: id}) == nil {
			delete(known, id)
			lost.WriteString(`<objectSet><kind>leave</kind><obj type="VirtualMachine">` + id + `</obj></objectSet>`)
		}
	}
	if lost.Len() == 0 {
		return answer
	}
	return bytes.Join([][]byte{answer[:end], lost.Bytes(), answer[end:]}, nil)
}
