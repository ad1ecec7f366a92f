package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes orphaned descendants children of this process, so that
// KillChildren finds them, those with a session of their own included.
func BecomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// sweepRounds bounds KillChildren: killing a child hands its own children up
// one generation, so each round reaches one level deeper.
const sweepRounds = 100

// reapTime is how long a sweep waits for the killed. One that a driver
// holds in the kernel dies when the driver lets go of it, or never; nobody can
// do more than send the signal.
const reapTime = 2 * time.Second

// KillChildren kills and reaps every child of this process except those kept,
// and, since killed children's children become ours, all of their descendants.
// The process must be a subreaper. Children that Start started are killed too,
// and their exit status is left to their Process.
func KillChildren(keep ...int) {
	var stuck []int
	for range sweepRounds {
		pids := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool {
			return slices.Contains(keep, pid) || slices.Contains(stuck, pid)
		})
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids { // all of them, before waiting for any
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		deadline := time.Now().Add(reapTime)
		for _, pid := range pids {
			if !reap(pid, deadline) {
				stuck = append(stuck, pid)
			}
		}
	}
}

// reap waits for a killed child until the deadline.
func reap(pid int, deadline time.Time) bool {
	if p, ok := owned.Load(pid); ok {
		select {
		case <-p.(*Process).done:
			return true
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

// KillMarked kills every process that has the entry (NAME=value) in the
// environment it was started with, this process excepted. It finds the
// descendants of a child that died before it could kill them itself, and reaps
// those that came to this process as a subreaper. It reports how many it found.
func KillMarked(entry string) int {
	deadline := time.Now().Add(reapTime)
	killed := make(map[int]bool)
	for range sweepRounds {
		pids := marked(entry)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed[pid] = true
		}
		time.Sleep(2 * time.Millisecond) // until the killed are gone from the table
	}
	for pid := range killed {
		// Another's child is its parent's to wait for.
		if _, ppid := stat(pid); ppid == os.Getpid() {
			reap(pid, deadline)
		}
	}
	return len(killed)
}

func marked(entry string) []int {
	var pids []int
	eachPid(func(pid int) {
		if pid == os.Getpid() {
			return
		}
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			return
		}
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if string(variable) == entry {
				if state, _ := stat(pid); state != 'Z' {
					pids = append(pids, pid)
				}
				return
			}
		}
	})
	return pids
}

// IsDescendant reports whether a process is a child of another, or a child's child.
func IsDescendant(pid, ancestor int) bool {
	for range sweepRounds {
		if _, pid = stat(pid); pid <= 1 {
			return false
		}
		if pid == ancestor {
			return true
		}
	}
	return false
}

func childrenOf(parent int) []int {
	var pids []int
	eachPid(func(pid int) {
		if _, ppid := stat(pid); ppid == parent {
			pids = append(pids, pid)
		}
	})
	return pids
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

// stat returns the state letter and the parent of a process; zero values if it
// is gone.
func stat(pid int) (state byte, ppid int) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	// The command's name may hold spaces and parentheses; the last one ends it.
	_, rest, ok := strings.Cut(string(data[bytes.LastIndexByte(data, ')')+1:]), " ")
	if !ok {
		return 0, 0
	}
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, 0
	}
	ppid, _ = strconv.Atoi(fields[1])
	return fields[0][0], ppid
}
