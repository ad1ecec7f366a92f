// Package crash lets tests kill a process at exactly a named point, as kill -9 would.
// Unless the variable is set, a point costs one comparison.
package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Variable names the point at which a process dies, and optionally on which pass:
// GPURUN_CRASH_AT=appended:3.
const Variable = "GPURUN_CRASH_AT"

// OnceVariable names a file: of all processes that pass the point, only the one that
// removes the file dies. Without it, every replacement of a dead process dies too.
const OnceVariable = "GPURUN_CRASH_ONCE"

// Hook, if set by a test, is called at every point that this process passes, so that the
// test can kill another process there. Set it before anything runs.
var Hook func(name string)

var (
	point, passing = parse(os.Getenv(Variable))
	passed         atomic.Int64
)

func parse(value string) (string, int64) {
	name, count, _ := strings.Cut(value, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		n = 1
	}
	return name, n
}

// Point kills the process if a test has chosen this point.
func Point(name string) {
	if Hook != nil {
		Hook(name)
	}
	if name != point || point == "" {
		return
	}
	if passed.Add(1) == passing && chosen() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

// chosen reports whether this process is the one to die.
func chosen() bool {
	once := os.Getenv(OnceVariable)
	return once == "" || os.Remove(once) == nil
}
