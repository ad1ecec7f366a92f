package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

func describeStuck(pid int) Stuck {
	s := Stuck{PID: pid, start: startTime(pid)}
	s.state, _ = stat(pid)
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
	state, _ := stat(s.PID)
	return state != 0 && state != 'X' && startTime(s.PID) == s.start && (state != 'Z' || hasThreads(s.PID))
}

// hasThreads reports whether a process whose first thread has exited has other threads: it
// looks like a zombie but is not one.
func hasThreads(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err == nil && len(threads) > 1
}
