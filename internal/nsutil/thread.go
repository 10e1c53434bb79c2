package nsutil

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread calls f, in the background, on a thread that ends with it: f may change
// what a thread has for itself, such as its namespaces. It never is the process's
// first one. That one cannot end before the process, and what it has is what
// /proc/self and /proc/PID tell of all.
func Thread(f func()) {
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread() // nothing was changed
		begun := make(chan struct{})
		Thread(func() {
			close(begun)
			f()
		})
		<-begun // until then nothing else runs here
	}()
}
