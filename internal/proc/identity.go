package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Identity identifies a process so that others can tell whether it is still the same one: a
// pid alone is reused, and refers to another process in another PID namespace. Without
// /proc, only the pid is known.
type Identity struct {
	PID int `json:"pid"`
	// Start is its start time, in the kernel's ticks; 0: unknown.
	Start uint64 `json:"pid_start,omitempty"`
	// Namespace is the PID namespace of the pid; "": unknown.
	Namespace string `json:"pid_namespace,omitempty"`
}

// Self returns this process.
func Self() Identity {
	return Identity{PID: os.Getpid(), Start: stat(os.Getpid()).start, Namespace: namespace()}
}

func namespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// Visible reports whether the pid refers to this process here, that is, whether it belongs
// to this PID namespace.
func (i Identity) Visible() bool { return i.Namespace == "" || i.Namespace == namespace() }

// Ended reports whether the process is known to have exited. That is unknown for a process
// of another PID namespace or with an unknown start time.
func (i Identity) Ended() bool {
	if i.Start == 0 || i.Namespace == "" || i.Namespace != namespace() {
		return false
	}
	s := stat(i.PID)
	return s.state == 0 || s.state == 'Z' || s.state == 'X' || s.start != i.Start
}

// status is what the system tells of a process.
type status struct {
	state  byte // a letter; 0 if it has exited, or without /proc
	parent int
	start  uint64 // in clock ticks since boot; with the pid it identifies the process
}

func stat(pid int) (s status) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The command's name, in parentheses, may contain anything; the last one ends it.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const startField = 22 - 3 // the state is the third
	if len(fields) <= startField {
		return status{}
	}
	s.state = fields[0][0]
	s.parent, _ = strconv.Atoi(fields[1])
	s.start, _ = strconv.ParseUint(fields[startField], 10, 64)
	return s
}

// maxAncestors limits the walk: no real chain of processes is that long.
const maxAncestors = 256

// Ancestors returns a process's parent, its parent's parent, and so on up to the first. It
// returns nothing for a process that has exited or is not visible from here.
func Ancestors(pid int) (chain []int) {
	for parent := stat(pid).parent; parent > 0 && len(chain) < maxAncestors; parent = stat(parent).parent {
		chain = append(chain, parent)
	}
	return chain
}

// IsDescendant reports whether a process descends from another.
func IsDescendant(pid, ancestor int) bool { return slices.Contains(Ancestors(pid), ancestor) }
