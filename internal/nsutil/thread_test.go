package nsutil

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What has a thread of its own never has the process's first one, on which any
// goroutine may find itself.
func TestThreadIsNeverTheFirst(t *testing.T) {
	t.Parallel()
	tid := func(run func(func())) int {
		got := make(chan int)
		run(func() { got <- unix.Gettid() })
		return <-got
	}
	plain := func(f func()) {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f()
		}()
	}
	var first, rounds int
	for deadline := time.Now().Add(20 * time.Second); rounds < 2000 || first < 3; rounds++ {
		if time.Now().After(deadline) {
			break
		}
		if tid(plain) == unix.Getpid() {
			first++
		}
		if tid(Thread) == unix.Getpid() {
			t.Fatal("on the first thread")
		}
	}
	t.Logf("%d rounds, a plain goroutine was on the first thread in %d", rounds, first)
}
