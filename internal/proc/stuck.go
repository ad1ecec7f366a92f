package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Stuck is a process that does not exit after SIGKILL: it waits in the kernel for a driver
// or a disk, or a debugger holds it. All a caller can do is to report it and avoid what it
// holds.
type Stuck struct {
	PID   int
	Name  string
	state byte
	// tracer is the pid of the debugger, 0 if none.
	tracer int
	start  uint64 // distinguishes it from another process with its pid
}

// String names the process and the reason why it does not exit.
func (s Stuck) String() string {
	text := fmt.Sprintf("process %d", s.PID)
	if s.Name != "" {
		text += fmt.Sprintf(" (%s)", s.Name)
	}
	text += " does not exit after SIGKILL"
	switch {
	case s.tracer != 0:
		text += fmt.Sprintf(": process %d traces and holds it", s.tracer)
	case s.state == 'D':
		text += ": it is blocked in the kernel, usually on a driver or a disk (state D)"
	case s.state != 0:
		text += fmt.Sprintf(" (state %c)", s.state)
	}
	return text
}

// killWait is how long a killed process may take to exit, in nanoseconds. A process that
// holds much device memory takes seconds.
var killWait atomic.Int64

func init() { SetKillWait(10 * time.Second) }

// KillWait is how long a killed process may take to exit before it is given up.
func KillWait() time.Duration { return time.Duration(killWait.Load()) }

// SetKillWait changes KillWait, for tests.
func SetKillWait(d time.Duration) { killWait.Store(int64(d)) }

// givenUp holds the stuck processes that this process gave up waiting for, by pid.
var givenUp sync.Map // of Stuck

// giveUp records that a process does not exit.
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
	if !s.(Stuck).Lives() { // its pid may have been reused
		givenUp.Delete(pid)
		return false
	}
	return true
}

func allGivenUp(pids []int) bool {
	return !slices.ContainsFunc(pids, func(pid int) bool { return !isGivenUp(pid) })
}

func describeStuck(pid int) Stuck {
	is := stat(pid)
	s := Stuck{PID: pid, start: is.start, state: is.state}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Name":
			s.Name = strings.TrimSpace(value)
		case "TracerPid":
			s.tracer, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return s
}

// Lives reports whether the process still exists.
func (s Stuck) Lives() bool {
	is := stat(s.PID)
	return is.state != 0 && is.state != 'X' && is.start == s.start && (is.state != 'Z' || hasThreads(s.PID))
}

// hasThreads reports whether a process whose first thread has exited has other threads: it
// looks like a zombie but is not one.
func hasThreads(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err == nil && len(threads) > 1
}
