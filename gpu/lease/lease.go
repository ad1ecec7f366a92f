package lease

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

// MiB is the unit of every user-visible figure here.
const MiB = 1 << 20

// GPU is one card as the driver currently shows it.
type GPU struct {
	// Key is the same for all processes on the host: the UUID of the GPU or the MIG
	// instance.
	Key string
	// Index counts the GPUs of the machine; a MIG instance has its GPU's.
	Index int
	// Label is for people: "GPU 0".
	Label string
	// Total and Used are in bytes; Total is 0 if unknown.
	Total, Used uint64
}

// on reports whether the lease holds part of the GPU.
func (l Lease) on(g GPU) bool { return l.GPU == g.Key && g.Key != "" }

// Lease is the content of a lease file, which never changes.
type Lease struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// GPU is the key; Index and Label are those the holder uses.
	GPU   string `json:"gpu"`
	Index int    `json:"index"`
	Label string `json:"label"`
	// Memory is in bytes; 0 for an exclusive lease.
	Memory    uint64 `json:"memory_bytes"`
	Exclusive bool   `json:"exclusive"`
	// Owned leases end when the owner releases the file's lock.
	Owned bool `json:"owned"`
	// Who took it, for people. All users can read the file, so it has no command line, which
	// may contain secrets.
	proc.Identity
	User string `json:"user"`
	Host string `json:"host"`

	Created time.Time `json:"created"`
	// Expires is zero if it never expires.
	Expires time.Time `json:"expires,omitzero"`

	// Ended means that the process that took an owned lease has exited and a child of it
	// keeps the lease. Holders are the PIDs, in this namespace, of the processes that
	// keep it; set only if PID has exited or belongs to another PID namespace. Neither is
	// in the file.
	Ended   bool  `json:"pid_ended,omitempty"`
	Holders []int `json:"holders,omitempty"`
}

// String names the holder: "embedding (process 4711 of ann, since 12:04)".
func (l Lease) String() string {
	who := "of " + l.User
	if l.Owned {
		who = fmt.Sprintf("%s of %s", l.Holder(), l.User)
	}
	return fmt.Sprintf("%s (%s, since %s)", l.Name, who, l.Created.Local().Format("15:04"))
}

// Holder is the process whose exit ends an owned lease: "process 4711".
func (l Lease) Holder() string {
	switch {
	case len(l.Holders) == 1:
		return fmt.Sprintf("process %d", l.Holders[0])
	case len(l.Holders) > 1:
		return fmt.Sprintf("the last of processes %s", strings.Trim(fmt.Sprint(l.Holders), "[]"))
	case l.Ended:
		return fmt.Sprintf("a child of process %d", l.PID)
	case !l.Visible():
		return fmt.Sprintf("process %d in another PID namespace, on %s,", l.PID, l.Host)
	}
	return fmt.Sprintf("process %d", l.PID)
}

// Processes are the PIDs, in this namespace, of the processes that keep an owned lease.
func (l Lease) Processes() []int {
	switch {
	case !l.Owned:
		return nil
	case len(l.Holders) > 0 || l.Ended || !l.Visible():
		return l.Holders
	}
	return []int{l.PID}
}

// Share is how much of the GPU the lease holds: "all of it", "4096 MiB".
func (l Lease) Share() string {
	if l.Exclusive {
		return "all of it"
	}
	return mib(l.Memory)
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes/MiB) }

// SameName reports whether two names mean the same service: embedding-service is
// embedding_service.
func SameName(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// CheckName rejects names that would not fit into a table or a message.
func CheckName(name string) error {
	if !validName().MatchString(name) {
		return fault.BadLease.New("%q is not a valid lease name: use 1 to 64 letters, digits, and . _ -", name)
	}
	return nil
}

// NamePattern is what CheckName accepts, as a regular expression.
const NamePattern = `^[A-Za-z0-9._][A-Za-z0-9._-]{0,63}$`

var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(NamePattern) })
