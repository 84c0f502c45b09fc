//go:build !linux

package main

import "syscall"

// group gives the program a process group of its own.
func group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
