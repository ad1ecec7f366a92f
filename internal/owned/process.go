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

// Process names a process so that others can tell whether it is still the same: a
// number alone is used again, and means another process in another PID namespace.
// Where there is no /proc only the number is known.
type Process struct {
	PID int
	// Start is when it began, in the kernel's ticks; 0: not known.
	Start uint64
	// Namespace is the PID namespace that the number belongs to; "": not known.
	Namespace string
}

// Self is this process.
func Self() Process {
	_, start := stat(os.Getpid())
	return Process{PID: os.Getpid(), Start: start, Namespace: namespace()}
}

func namespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// Visible reports whether the number means this process here, as far as is known: it
// is of this PID namespace.
func (p Process) Visible() bool { return p.Namespace == "" || p.Namespace == namespace() }

// Ended reports whether the process is known to have ended. One of another PID
// namespace, or whose start is not known, is not.
func (p Process) Ended() bool {
	if p.Start == 0 || p.Namespace == "" || p.Namespace != namespace() {
		return false
	}
	state, start := stat(p.PID)
	return state == 0 || state == 'Z' || state == 'X' || start != p.Start
}

// stat returns the state of a process and when it began; 0 for one that does not exist.
func stat(pid int) (state byte, start uint64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The name stands in parentheses, and may contain any of these itself.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const startField = 22 - 3 // the state is the third
	if len(fields) <= startField {
		return 0, 0
	}
	start, _ = strconv.ParseUint(fields[startField], 10, 64)
	return fields[0][0], start
}

// Holders returns the processes that have a file open, as far as they can be seen
// from here: those of this user, in this PID namespace or below it. The file is known
// by its base name, which must be used once: in a container it may lie elsewhere.
func Holders(path string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil || len(pids) > 0 && pids[len(pids)-1] == pid {
			continue
		}
		// Not by asking for the file itself, which may lie on a disk that hangs.
		if open, err := os.Readlink(link); err == nil && filepath.Base(open) == filepath.Base(path) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Locker returns the process that took the lock of a file, 0 where that cannot be
// seen. It may have ended, and left the lock to a child.
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
