package lease

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/owned"
)

// MiB is the unit of every figure that a person reads or writes here.
const MiB = 1 << 20

// GPU is one card as the driver shows it at the moment.
type GPU struct {
	// Key is the same for everybody on the host: the UUID of the GPU or of the MIG
	// instance.
	Key string
	// Index is the GPU's in the machine, also for a MIG instance of it.
	Index int
	// Label is for people: "GPU 0".
	Label string
	// Total and Used are bytes; Total 0: not known.
	Total, Used uint64
}

// indexPrefix begins the key of a lease that an earlier version took under an index.
// What that index counted depended on its holder's environment, so such a lease may
// hold any GPU.
const indexPrefix = "index-"

// unknownGPU reports whether the lease does not say which GPU it holds.
func (l Lease) unknownGPU() bool { return strings.HasPrefix(l.GPU, indexPrefix) }

// on reports whether the lease holds, or may hold, something of the GPU.
func (l Lease) on(g GPU) bool { return l.GPU == g.Key && g.Key != "" || l.unknownGPU() }

// Lease is what its file says. Nothing in it ever changes.
type Lease struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// GPU is the key, Index and Label what the one who took it calls it.
	GPU   string `json:"gpu"`
	Index int    `json:"index"`
	Label string `json:"label"`
	// Memory is in bytes; 0 for an exclusive lease.
	Memory    uint64 `json:"memory_bytes"`
	Exclusive bool   `json:"exclusive"`
	// Owned: it is free when its owner has let go of the file's lock.
	Owned bool `json:"owned"`
	// Who took it, for people. PIDStart and PIDNamespace tell whether the process
	// number still means that process, here; earlier versions left them out.
	// Everybody can read the file, so it has no command line: that may hold secrets.
	PID          int    `json:"pid"`
	PIDStart     uint64 `json:"pid_start,omitempty"`
	PIDNamespace string `json:"pid_namespace,omitempty"`
	User         string `json:"user"`
	Host         string `json:"host"`

	Created time.Time `json:"created"`
	// Expires is zero for never.
	Expires time.Time `json:"expires,omitzero"`

	// Ended: the process that took an owned lease has ended, and another that it
	// started keeps the lease. Holders are the processes that keep it, by the numbers
	// that they have here, where PID does not tell: it has ended, or belongs to another
	// PID namespace. Neither is in the file.
	Ended   bool  `json:"pid_ended,omitempty"`
	Holders []int `json:"holders,omitempty"`
}

// String says who holds what, for a sentence: "embedding (process 4711 of ann,
// since 12:04)".
func (l Lease) String() string {
	who := "of " + l.User
	if l.Owned {
		who = fmt.Sprintf("%s of %s", l.Holder(), l.User)
	}
	return fmt.Sprintf("%s (%s, since %s)", l.Name, who, l.Created.Local().Format("15:04"))
}

// Holder is the process with which an owned lease ends: "process 4711".
func (l Lease) Holder() string {
	switch {
	case len(l.Holders) == 1:
		return fmt.Sprintf("process %d", l.Holders[0])
	case len(l.Holders) > 1:
		return fmt.Sprintf("the last of processes %s", strings.Trim(fmt.Sprint(l.Holders), "[]"))
	case l.Ended:
		return fmt.Sprintf("what process %d started", l.PID)
	case !l.taker().Visible():
		return fmt.Sprintf("process %d of another PID namespace, on %s,", l.PID, l.Host)
	}
	return fmt.Sprintf("process %d", l.PID)
}

// Processes are those that keep an owned lease, by the numbers that they have here.
func (l Lease) Processes() []int {
	switch {
	case !l.Owned:
		return nil
	case len(l.Holders) > 0 || l.Ended || !l.taker().Visible():
		return l.Holders
	}
	return []int{l.PID}
}

// taker is the process that took it.
func (l Lease) taker() owned.Process {
	return owned.Process{PID: l.PID, Start: l.PIDStart, Namespace: l.PIDNamespace}
}

// Share is what of the GPU it holds: "all of it", "4096 MiB".
func (l Lease) Share() string {
	if l.Exclusive {
		return "all of it"
	}
	return mib(l.Memory)
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes/MiB) }

// SameName reports whether two names mean one service: embedding-service is
// embedding_service.
func SameName(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// CheckName refuses what could not stand in a table or a sentence.
func CheckName(name string) error {
	ok := name != "" && len(name) <= 64 && strings.Trim(name, nameLetters) == "" && !strings.HasPrefix(name, "-")
	if !ok {
		return usage("%q is no name for a lease: use 1 to 64 letters, digits, and . _ -", name)
	}
	return nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
