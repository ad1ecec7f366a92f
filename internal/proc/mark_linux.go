package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// owner is the process that made a mark. A pid is meaningful only in its namespace and
// together with the start time of the process.
type owner struct {
	pid       int
	start     uint64
	namespace uint64
}

func markOfSelf() string {
	return fmt.Sprintf("%d-%d-%d-", os.Getpid(), startTime(os.Getpid()), pidNamespace())
}

func parseMark(mark string) (o owner, ok bool) {
	fields := strings.Split(mark, "-")
	if len(fields) != 4 {
		return o, false
	}
	var errs [3]error
	o.pid, errs[0] = strconv.Atoi(fields[0])
	o.start, errs[1] = strconv.ParseUint(fields[1], 10, 64)
	o.namespace, errs[2] = strconv.ParseUint(fields[2], 10, 64)
	return o, errs == [3]error{} && o.pid > 0 && o.start > 0 && o.namespace > 0
}

// pidNamespace returns the number of this process's namespace; 0 if unknown.
func pidNamespace() uint64 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// isDead reports whether the process has certainly exited. For a process in another
// namespace, nothing is certain.
func (o owner) isDead() bool {
	if o.namespace != pidNamespace() {
		return false
	}
	state, _ := stat(o.pid)
	return state == 0 || state == 'Z' || state == 'X' || startTime(o.pid) != o.start
}

// abandonedGrace is how long the processes of a dead owner may take to exit by themselves,
// and then again when killed. Its guards kill them first and find more than this process
// does. A process that does not exit must not delay every job.
const abandonedGrace = 2 * time.Second

// KillAbandoned kills the processes of this user that were started with the variable set to
// a mark from [NewMark] whose owner is dead. It ignores processes of a living owner, of
// another user, or of an owner in another PID namespace. It returns how many it found, and
// those that do not exit.
func KillAbandoned(variable string) (found int, stuck []Stuck) {
	list := func() []int { return abandoned(variable) }
	for deadline := time.Now().Add(abandonedGrace); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if len(list()) == 0 {
			return 0, nil
		}
	}
	return killAll(list, abandonedGrace)
}

func abandoned(variable string) []int {
	pids := marked(func(entry string) bool {
		mark, ok := strings.CutPrefix(entry, variable+"=")
		if !ok {
			return false
		}
		owner, ok := parseMark(mark)
		return ok && owner.isDead()
	})
	mine := Ancestors(os.Getpid())
	return slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(mine, pid) || !isOurs(pid) })
}

// isOurs reports whether a process is this user's.
func isOurs(pid int) bool {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}
