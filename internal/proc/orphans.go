package proc

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// orphanPause is how long dead orphans wait to be reaped, so that many are reaped at once.
const orphanPause = 100 * time.Millisecond

// ReapOrphans reaps descendants that this process adopted as a subreaper, when they exit,
// until stop is called. Otherwise a kernel that double-forks would leave a zombie each
// time, until the system can start no more processes. It ignores children started by
// Start; this process must not wait for any other children.
func ReapOrphans() (stop func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				reapOrphans()
			case <-done:
				return
			}
			select {
			case <-time.After(orphanPause):
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ended)
		close(done)
	}
}

// reapOrphans reaps the dead children that Start did not start.
func reapOrphans() {
	starting.Lock()
	defer starting.Unlock()
	if _, dead := hasChildren(); !dead {
		return
	}
	for _, pid := range childrenOf(os.Getpid()) {
		if _, ok := owned.Load(pid); ok {
			continue
		}
		if stat(pid).state == 'Z' {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
