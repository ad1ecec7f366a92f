package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// startTime returns when a process started, in clock ticks since boot; 0 if it has exited.
// Together with the pid it identifies a process uniquely.
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
