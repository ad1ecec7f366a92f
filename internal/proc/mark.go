package proc

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// NewMark returns a unique value for an environment variable that identifies the
// descendants of this process and tells whether this process is still alive; see
// [KillMarked] and [KillAbandoned].
func NewMark() string {
	self := Self()
	return fmt.Sprintf("%d-%d-%s-%s", self.PID, self.Start, self.Namespace, rand.Text())
}

// MarkOwner returns what all marks of one process have in common; "" if it is no mark.
func MarkOwner(mark string) string {
	return mark[:max(0, strings.LastIndexByte(mark, '-'))]
}

// ownerOf returns the process that made a mark. It never counts as ended if it is unknown.
func ownerOf(mark string) (owner Identity) {
	if fields := strings.Split(mark, "-"); len(fields) == 4 {
		owner.PID, _ = strconv.Atoi(fields[0])
		owner.Start, _ = strconv.ParseUint(fields[1], 10, 64)
		owner.Namespace = fields[2]
	}
	return owner
}

// WorksForUs reports whether a process descends from this one or, with the variable set to a mark
// that this process has made, works for it.
func WorksForUs(pid int, variable string) bool {
	if IsDescendant(pid, os.Getpid()) {
		return true
	}
	environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if mark, ok := strings.CutPrefix(entry, variable+"="); ok {
			return ownerOf(mark) == Self()
		}
	}
	return false
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
		return ok && ownerOf(mark).Ended()
	})
	mine := Ancestors(os.Getpid())
	return slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(mine, pid) || !isOurs(pid) })
}

// isOurs reports whether a process is this user's.
func isOurs(pid int) bool {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}
