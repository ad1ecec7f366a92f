package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inherited is what a process inherits from the one that starts it, besides descriptors and the
// environment.
type Inherited struct {
	Dir    string      `json:"dir"`
	Umask  int         `json:"umask"`
	CPUs   []int       `json:"cpus"`
	Limits [][3]uint64 `json:"limits"` // of setrlimit: which, soft, hard
}

// limits is the number of limits that the system has.
const limits = 16

// InheritedByChildren returns what children of this process inherit.
func InheritedByChildren() *Inherited {
	s := &Inherited{Umask: syscall.Umask(0o077)}
	syscall.Umask(s.Umask)
	s.Dir, _ = os.Getwd()
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := range len(set) * 64 {
			if set.IsSet(cpu) {
				s.CPUs = append(s.CPUs, cpu)
			}
		}
	}
	for which := range limits {
		var limit unix.Rlimit
		if which == unix.RLIMIT_NOFILE { // Go has raised it for itself
			continue
		}
		if unix.Getrlimit(which, &limit) == nil {
			s.Limits = append(s.Limits, [3]uint64{uint64(which), limit.Cur, limit.Max})
		}
	}
	return s
}
