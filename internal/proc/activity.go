package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// LockedActivity describes what a process has done so far; empty if one of its threads waits for
// something other than a lock, or if that is unknown.
func LockedActivity(pid int) string {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return ""
	}
	var text strings.Builder
	for _, thread := range threads {
		waits, _ := os.ReadFile(thread + "/wchan")
		if !strings.Contains(string(waits), "futex") {
			return ""
		}
		times, err := os.ReadFile(thread + "/stat")
		if err != nil {
			return ""
		}
		fields := strings.Fields(string(times[strings.LastIndexByte(string(times), ')')+1:]))
		if len(fields) < 13 {
			return ""
		}
		fmt.Fprintln(&text, thread, fields[11], fields[12]) // utime, stime
	}
	io, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	text.Write(io) // output included
	return text.String()
}
