package proc

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// orphanPause is how long ended orphans may lie: enough to take many at once.
const orphanPause = 100 * time.Millisecond

// ReapOrphans reaps descendants that this process adopted as a subreaper, when they
// end, until stop is called. A kernel that forks twice would otherwise leave a zombie
// each time, until the system lets nobody start another process. Children that Start
// started are left alone; no other children may be waited for in this process.
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

// reapOrphans reaps the ended children that nobody waits for.
func reapOrphans() {
	starting.Lock()
	defer starting.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		if _, ok := owned.Load(pid); ok {
			continue
		}
		if state, _ := stat(pid); state == 'Z' {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
