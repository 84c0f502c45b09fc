// Command pause is the process that holds the namespaces of a pod. It waits for the signal that ends it, and for children
// whose parents have ended.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		if <-signals != syscall.SIGCHLD {
			return
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
