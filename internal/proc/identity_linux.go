package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// startTime is when a process was started, in clock ticks since the system was; 0 if
// it is gone. Together with the pid it names one process for ever.
func startTime(pid int) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return start
}
