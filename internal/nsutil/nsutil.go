// Package nsutil makes network namespaces and works in them. A thread that has
// entered one cannot always go back, as the one that it came from can be another
// user namespace's: such threads end with what they were for.
package nsutil

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// New makes a network namespace. It lives while the file, a process or a link of
// a pair in another namespace keeps it.
func New() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	Thread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		var f *os.File
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		done <- result{f, err}
	})
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", r.err)
	}
	return r.f, nil
}

// Do calls f on a thread in a network namespace; what f starts by the go statement
// runs elsewhere.
func Do(ns *os.File, f func() error) error {
	done := make(chan error)
	Thread(func() {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
			return
		}
		done <- f()
	})
	return <-done
}
