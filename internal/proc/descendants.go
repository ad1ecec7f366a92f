package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// sweepRounds limits KillChildren: killing a child hands its children to this process, so
// each round reaches one level deeper.
const sweepRounds = 100

// released holds the pids of children that outlive this process.
var released sync.Map

// Release lets a child outlive this process: KillChildren spares it.
func Release(pid int) { released.Store(pid, true) }

// KillChildren kills and reaps every child of this process except those kept, and all of
// their descendants, since this process adopts them. It must be a subreaper. Children
// started by Start are killed too, but their Process reaps them. KillChildren returns
// those that do not exit within [KillWait]; a later call does not wait for them again.
func KillChildren(keep ...int) []Stuck {
	var stuck []Stuck
	for range sweepRounds {
		if some, _ := hasChildren(); !some {
			break
		}
		pids := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool {
			_, isReleased := released.Load(pid)
			return isReleased || slices.Contains(keep, pid) || slices.ContainsFunc(stuck, func(s Stuck) bool { return s.PID == pid })
		})
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids { // kill all before waiting for any
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		deadline := time.Now().Add(KillWait())
		for _, pid := range pids {
			if !reap(pid, deadline) {
				stuck = append(stuck, giveUp(pid))
			}
		}
	}
	return stuck
}

// reap waits for a killed child until the deadline, or not at all if an earlier call gave
// it up.
func reap(pid int, deadline time.Time) bool {
	if isGivenUp(pid) {
		deadline = time.Time{}
	}
	if p, ok := owned.Load(pid); ok {
		select {
		case <-p.(*Process).done:
			return !p.(*Process).exit.Stuck
		case <-time.After(time.Until(deadline)):
			return false
		}
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if got == pid || err != nil && err != syscall.EINTR {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
}

// KillMarked kills every process, except this one, that was started with the entry
// (NAME=value) in its environment. It finds the descendants of a child that died before it
// could kill them itself, and reaps those that this process adopted as a subreaper. It
// returns how many it found, and those that do not exit within [KillWait].
func KillMarked(entry string) (found int, stuck []Stuck) {
	isMarked := func(value string) bool { return value == entry }
	return killAll(func() []int { return marked(isMarked) }, KillWait())
}

// killAll kills the processes that list returns until it returns none, or only processes
// that do not exit in time.
func killAll(list func() []int, within time.Duration) (found int, stuck []Stuck) {
	deadline := time.Now().Add(within)
	killed := make(map[int]bool)
	pause := 2 * time.Millisecond
	pids := list()
	for ; len(pids) > 0 && time.Now().Before(deadline); pids = list() {
		fresh := false
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			fresh = fresh || !killed[pid]
			killed[pid] = true
		}
		if !fresh && allGivenUp(pids) {
			break
		}
		time.Sleep(pause) // until the killed processes have left the process table
		pause = min(2*pause, 50*time.Millisecond)
	}
	for _, pid := range pids {
		stuck = append(stuck, giveUp(pid))
	}
	for pid := range killed {
		// Only the parent can wait for a child.
		if stat(pid).parent == os.Getpid() && !isGivenUp(pid) {
			reap(pid, deadline)
		}
	}
	return len(killed), stuck
}

// marked returns the living processes, except this one, with a matching entry in their
// environment.
func marked(match func(entry string) bool) []int {
	var pids []int
	eachPid(func(pid int) {
		if pid == os.Getpid() {
			return
		}
		environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if match(string(variable)) {
				if state := stat(pid).state; state != 0 && state != 'Z' {
					pids = append(pids, pid)
				}
				return
			}
		}
	})
	return pids
}

func childrenOf(parent int) []int {
	var pids []int
	eachPid(func(pid int) {
		if stat(pid).parent == parent {
			pids = append(pids, pid)
		}
	})
	return pids
}

// Descendants returns the processes below a process.
func Descendants(ancestor int) []int {
	children := make(map[int][]int)
	eachPid(func(pid int) {
		parent := stat(pid).parent
		children[parent] = append(children[parent], pid)
	})
	found := slices.Clone(children[ancestor])
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
		delete(children, found[i]) // a number that is used again must not lead back
	}
	return found
}

func eachPid(f func(pid int)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			f(pid)
		}
	}
}
