package lease

import (
	"fmt"
	"strings"
	"time"
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
	Memory    uint64 `json:"memory_bytes,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
	// Owned: it is free when its owner has let go of the file's lock.
	Owned bool `json:"owned"`
	// Who took it, for people; a process number may be that of another namespace.
	PID     int    `json:"pid"`
	User    string `json:"user"`
	Host    string `json:"host"`
	Command string `json:"command,omitempty"`

	Created time.Time `json:"created"`
	// Expires is zero for never.
	Expires time.Time `json:"expires,omitzero"`
}

// String says who holds what, for a sentence: "embedding (process 4711 of ann,
// since 12:04)".
func (l Lease) String() string {
	who := "of " + l.User
	if l.Owned {
		who = fmt.Sprintf("process %d of %s", l.PID, l.User)
	}
	return fmt.Sprintf("%s (%s, since %s)", l.Name, who, l.Created.Local().Format("15:04"))
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
