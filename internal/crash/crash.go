// Package crash lets tests end a process at a named point, as kill -9 would: at
// the point, not about when it is there. Without the variable a point costs a
// comparison.
package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Variable names the point at which a process that passes it dies, and
// optionally at which passing: GPURUN_CRASH_AT=appended:3.
const Variable = "GPURUN_CRASH_AT"

// OnceVariable names a file: of all the processes that pass the point only the
// one that removes it dies. Without it so does every process that is started in
// the place of a dead one.
const OnceVariable = "GPURUN_CRASH_ONCE"

// Hook, where a test has set it, is told of every point that this process
// passes, so that somebody else can be ended there. It is set before anything
// runs.
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

// Point ends the process here if a test wants it to.
func Point(name string) {
	if Hook != nil {
		Hook(name)
	}
	if name != point || point == "" {
		return
	}
	if passed.Add(1) == passing && chosen() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it takes a moment
	}
}

// chosen reports whether it is this process that dies.
func chosen() bool {
	once := os.Getenv(OnceVariable)
	return once == "" || os.Remove(once) == nil
}
