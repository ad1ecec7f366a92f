// Package procs makes a process that mostly waits cheap: a client of a server, or a worker
// that passes records on. In such a process the runtime's threads, which look for work each
// time a message arrives, cost more than the work, and a small heap is collected all the time.
package procs

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// turn is how often the process looks at its CPU use.
	turn = 100 * time.Millisecond
	// busy is the share of its processors from which it gets twice as many.
	busy = 0.75
	// idle is the share below which it gives half of them back, after idleTurns.
	idle      = 0.3
	idleTurns = 20
	// ballast is memory that is never touched, so it takes none. The collector runs when
	// the heap has doubled: now not before it has grown by that much.
	ballast = 32 << 20
)

var (
	once   sync.Once
	memory []byte // the ballast
)

// Save lets the process run on as few processors as its CPU use allows, from one up to those
// that it has now. It does nothing if the user has set GOMAXPROCS. It lasts as long as the
// process; further calls have no effect.
func Save() {
	once.Do(func() {
		memory = make([]byte, ballast)
		if os.Getenv("GOMAXPROCS") == "" {
			go adapt(runtime.GOMAXPROCS(0))
		}
	})
}

// adapt follows the CPU use. It does not return.
func adapt(most int) {
	n := number{most: most, now: 1}
	runtime.GOMAXPROCS(n.now)
	before, since := used(), time.Now()
	for range time.Tick(turn) {
		cpu, now := used(), time.Now()
		was := n.now
		n.follow(float64(cpu-before) / float64(now.Sub(since)))
		before, since = cpu, now
		if n.now != was {
			runtime.GOMAXPROCS(n.now)
		}
	}
}

// number decides how many processors to use.
type number struct {
	now, most int
	quiet     int // turns
}

// follow takes how many processors were used during the last turn.
func (n *number) follow(used float64) {
	n.quiet++
	switch share := used / float64(n.now); {
	case share > busy:
		n.now, n.quiet = min(2*n.now, n.most), 0
	case share > idle:
		n.quiet = 0
	case n.quiet >= idleTurns:
		n.now, n.quiet = max(n.now/2, 1), 0
	}
}

// used returns the CPU time of this process so far.
func used() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
