package owned

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Holders returns the processes that have a file open, as far as they are visible: processes of
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
