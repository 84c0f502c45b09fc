package main

import "syscall"

// group gives the program a process group of its own, and ends it with this process should this one be killed.
func group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
