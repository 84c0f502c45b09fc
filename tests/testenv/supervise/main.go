// Command supervise runs another program and ends it when standard input is
// closed. A test holds the other end, so nothing it started survives it, not
// even when it is killed.
//
//	supervise [-pid FILE] -- PROGRAM ARGUMENTS...
//	supervise -remove FOLDER
//
// The second form only removes the folder then, and the control groups of the
// folder's name once no process is in them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	// The death signal in group_linux.go is sent when the starting thread ends, so that thread must be the main one.
	runtime.LockOSThread()
	remove := flag.String("remove", "", "folder to remove when standard input is closed; its name must start with ccm-test-")
	pid := flag.String("pid", "", "file for the program's process id")
	grace := flag.Duration("grace", 3*time.Second, "time between SIGTERM and SIGKILL")
	flag.Parse()
	// Ctrl-C goes to the whole foreground group. Who holds our standard input decides when this ends. Caught
	// and thrown away, because the program would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if *remove != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if name := filepath.Base(*remove); strings.HasPrefix(name, "ccm-test-") {
			removeGroups(name)
			_ = os.RemoveAll(*remove)
		}
		return
	}
	os.Exit(run(flag.Args(), *pid, *grace))
}

// removeGroups removes the control groups of this name, of version 1 and 2, and
// those below them. Processes that are about to end may be in them.
func removeGroups(name string) {
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
		v2, _ := filepath.Glob("/sys/fs/cgroup/" + name)
		top := append(v1, v2...)
		if len(top) == 0 {
			return
		}
		for _, group := range top {
			var all []string
			_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					all = append(all, path)
				}
				return nil
			})
			// The inner ones first.
			slices.Reverse(all)
			for _, path := range all {
				_ = os.Remove(path)
			}
		}
	}
}

func run(command []string, pid string, grace time.Duration) int {
	program := exec.Command(command[0], command[1:]...)
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	// A group of its own, for the same reason.
	program.SysProcAttr = group()
	if err := program.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return 127
	}
	if pid != "" {
		if err := announce(pid, program.Process.Pid); err != nil {
			fmt.Fprintln(os.Stderr, "supervise:", err)
			_ = program.Process.Kill()
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	select {
	case err := <-ended:
		return status(err)
	case <-closed:
	}
	// A stopped process does not see SIGTERM before it goes on.
	_ = program.Process.Signal(syscall.SIGTERM)
	_ = program.Process.Signal(syscall.SIGCONT)
	select {
	case err := <-ended:
		return status(err)
	case <-time.After(grace):
		_ = program.Process.Kill()
		return status(<-ended)
	}
}

// announce writes the file in one step, so that a reader never sees half of it.
func announce(path string, pid int) error {
	if err := os.WriteFile(path+".new", []byte(fmt.Sprint(pid)), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// status is the program's exit code, or 128 and the number of the signal that ended it.
func status(err error) int {
	var failed *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &failed) {
		return 127
	}
	if wait, ok := failed.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return 128 + int(wait.Signal())
	}
	return failed.ExitCode()
}
