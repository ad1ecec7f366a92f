package owned

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process identifies a process so that others can tell whether it is still the same one: a
// pid alone is reused, and refers to another process in another PID namespace. Without
// /proc, only the pid is known.
type Process struct {
	PID int
	// Start is its start time, in the kernel's ticks; 0: unknown.
	Start uint64
	// Namespace is the PID namespace of the pid; "": unknown.
	Namespace string
}

// Self returns this process.
func Self() Process {
	_, start := stat(os.Getpid())
	return Process{PID: os.Getpid(), Start: start, Namespace: namespace()}
}

func namespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// Visible reports whether the pid refers to this process here, that is, whether it belongs
// to this PID namespace.
func (p Process) Visible() bool { return p.Namespace == "" || p.Namespace == namespace() }

// Ended reports whether the process is known to have exited. That is unknown for a process
// of another PID namespace or with an unknown start time.
func (p Process) Ended() bool {
	if p.Start == 0 || p.Namespace == "" || p.Namespace != namespace() {
		return false
	}
	state, start := stat(p.PID)
	return state == 0 || state == 'Z' || state == 'X' || start != p.Start
}

// stat returns the state and start time of a process; 0 if it does not exist.
func stat(pid int) (state byte, start uint64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The name is in parentheses and may itself contain some.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const startField = 22 - 3 // the state is the third
	if len(fields) <= startField {
		return 0, 0
	}
	start, _ = strconv.ParseUint(fields[startField], 10, 64)
	return fields[0][0], start
}

// Holders returns the processes that have a file open, as far as they are visible: those of
// this user, in this PID namespace or below. It identifies the file by its base name, which
// must be unique, since a container may have it at another path.
func Holders(path string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil || len(pids) > 0 && pids[len(pids)-1] == pid {
			continue
		}
		// Do not access the file itself: its disk may hang.
		if open, err := os.Readlink(link); err == nil && filepath.Base(open) == filepath.Base(path) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Locker returns the process that locked a file, 0 if unknown. It may have exited and left
// the lock to a child.
func Locker(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	inode, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		// 3: FLOCK  ADVISORY  WRITE 4711 08:01:393220 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", inode.Ino)) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
