package python

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
)

// A forked interpreter can hang on a lock that a thread of its template held, however carefully
// that was checked: a library may keep state of its own. Loading a model may be slow, so slowness
// alone is no sign of it.
var (
	// hangAfter is how long a forked interpreter may do nothing at all in setup or in its first
	// batch while all of its threads wait for locks.
	hangAfter = 60 * time.Second
	// hangLook is how often to look.
	hangLook = 5 * time.Second
)

// hungReason is why a template is not used again after one of its children hung.
const hungReason = "a forked interpreter waited for a lock that no thread held"

// watchHang kills a forked interpreter that hangs, and spoils its template. The returned function
// ends the watch.
func (c *child) watchHang() (stop func()) {
	if c.forked == nil || c.forked.Itself {
		return func() {}
	}
	done, after, look := make(chan struct{}), hangAfter, hangLook
	go func() {
		var last string
		since := time.Now()
		for {
			select {
			case <-time.After(look):
			case <-c.process.Done():
				return
			case <-done:
				return
			}
			now := proc.LockedActivity(c.process.Pid())
			if now == "" || now != last {
				last, since = now, time.Now()
				continue
			}
			if time.Since(since) >= after {
				c.spoil(fmt.Sprintf("%s for %s", hungReason, after))
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// spoil kills a forked interpreter and lets no other be forked from its template.
func (c *child) spoil(why string) {
	if c.forked == nil {
		return
	}
	c.spoilt.Store(true)
	c.printer.write(fmt.Appendf(nil, "gpurun: %s; Python starts without a template from now on", why))
	c.forked.Spoil(why)
}

// badFork are messages of frameworks that cannot work in a forked process after all.
var badFork = []string{"in forked subprocess", "before fork", "after fork"}

// failsInFork reports whether a failure is about the fork.
func (c *child) failsInFork(message string) bool {
	return c.forked != nil && !c.forked.Itself && slices.ContainsFunc(badFork, func(text string) bool { return strings.Contains(message, text) })
}
