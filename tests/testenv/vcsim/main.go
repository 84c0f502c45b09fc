// Command vcsim is a vCenter simulator for tests: govmomi's simulator with an
// inventory given by a scenario, behind an HTTP layer that counts, delays and
// breaks calls, and with a control address through which a test changes the
// inventory while it runs.
//
// It reads the scenario (JSON) from the file given by -scenario, prints one
// JSON line with its addresses on standard output, and exits when its standard
// input is closed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
)

// announcement is the one line on standard output.
type announcement struct {
	SDK          string `json:"sdk"`
	Port         int    `json:"port"`
	Control      string `json:"control"`
	SHA1         string `json:"sha1"`
	SHA256       string `json:"sha256"`
	CA           string `json:"ca"`
	InstanceUUID string `json:"instanceUuid"`
}

func main() {
	path := flag.String("scenario", "", "file with the scenario as JSON")
	verbose := flag.Bool("v", false, "keep the simulator's own log lines on standard error")
	flag.Parse()
	if !*verbose {
		log.SetOutput(io.Discard)
	}
	if err := run(*path); err != nil {
		fmt.Fprintln(os.Stderr, "vcsim:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the scenario: %w", err)
	}
	var wanted Scenario
	if err := json.Unmarshal(text, &wanted); err != nil {
		return fmt.Errorf("parsing the scenario: %w", err)
	}
	vcenter, err := NewVcenter(&wanted)
	if err != nil {
		return err
	}
	identity, err := NewIdentity(wanted.Certificate, wanted.Key)
	if err != nil {
		return err
	}
	tokens, err := NewTokens(wanted.SolutionUsers)
	if err != nil {
		return err
	}
	front, err := NewFront(vcenter, identity, tokens)
	if err != nil {
		return err
	}
	control, err := NewControl(vcenter, front)
	if err != nil {
		return err
	}
	line, err := json.Marshal(announcement{
		SDK:          fmt.Sprintf("https://127.0.0.1:%d/sdk", front.Port),
		Port:         front.Port,
		Control:      control,
		SHA1:         identity.SHA1,
		SHA256:       identity.SHA256,
		CA:           identity.CA,
		InstanceUUID: vcenter.InstanceUUID,
	})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	// The test that started this holds the other end: when it ends, however it
	// ends, so does the simulator.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
