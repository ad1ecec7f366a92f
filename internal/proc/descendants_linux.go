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

// KillChildren kills and reaps every child of this process except those kept,
// and, since killed children's children become ours, all of their descendants.
// The process must be a subreaper, and must not wait for those children itself.
func KillChildren(keep ...int) {
	for range sweepRounds {
		found := false
		for _, pid := range childrenOf(os.Getpid()) {
			if slices.Contains(keep, pid) {
				continue
			}
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		if !found {
			return
		}
	}
}

// KillMarked kills every process that has the entry (NAME=value) in the
// environment it was started with, this process excepted. It finds the
// descendants of a child that died before it could kill them itself. It reports
// how many it found.
func KillMarked(entry string) int {
	killed := 0
	for range sweepRounds {
		pids := marked(entry)
		if len(pids) == 0 {
			return killed
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			// Reaps it if it is ours; else its parent does.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		killed += len(pids)
		time.Sleep(2 * time.Millisecond) // until the killed are gone from the table
	}
	return killed
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
