package proc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Stuck is a process that SIGKILL does not end: it waits in the kernel for a driver or
// a disk, or a debugger holds it. Nobody can do more than report it, and leave alone
// what it holds.
type Stuck struct {
	PID   int
	Name  string
	state byte
	// tracer is the pid of the debugger, 0 if none.
	tracer int
	start  uint64 // tells it from another process with its pid
}

// String says which process it is, and why it does not end.
func (s Stuck) String() string {
	text := fmt.Sprintf("process %d", s.PID)
	if s.Name != "" {
		text += fmt.Sprintf(" (%s)", s.Name)
	}
	text += " does not end after SIGKILL"
	switch {
	case s.tracer != 0:
		text += fmt.Sprintf(": process %d traces it and holds it", s.tracer)
	case s.state == 'D':
		text += ": it waits in the kernel, mostly for a driver or a disk (state D)"
	case s.state != 0:
		text += fmt.Sprintf(" (state %c)", s.state)
	}
	return text
}

// killWait is how long a killed process may take to end, in nanoseconds. Those that
// hold much device memory take seconds.
var killWait atomic.Int64

func init() { SetKillWait(10 * time.Second) }

// KillWait is how long a killed process may take to end before it is given up.
func KillWait() time.Duration { return time.Duration(killWait.Load()) }

// SetKillWait changes that, for tests.
func SetKillWait(d time.Duration) { killWait.Store(int64(d)) }

// givenUp are the stuck processes that this process has waited for in vain, by pid.
var givenUp sync.Map // of Stuck

// giveUp notes that a process does not end.
func giveUp(pid int) Stuck {
	s := describeStuck(pid)
	givenUp.Store(pid, s)
	return s
}

func isGivenUp(pid int) bool {
	s, ok := givenUp.Load(pid)
	if !ok {
		return false
	}
	if !s.(Stuck).Lives() { // its pid may be another's
		givenUp.Delete(pid)
		return false
	}
	return true
}

func allGivenUp(pids []int) bool {
	for _, pid := range pids {
		if !isGivenUp(pid) {
			return false
		}
	}
	return true
}
