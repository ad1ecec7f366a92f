package lease

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits bound what may be leased of each GPU.
type Limits struct {
	// Memory is how many bytes of each GPU may be leased; 0 for all.
	Memory uint64
	// Reserve is how many bytes are never leased.
	Reserve uint64
}

// Account is how much of one GPU is taken, and by which leases.
type Account struct {
	GPU     GPU     `json:"-"`
	Label   string  `json:"gpu"`
	Total   uint64  `json:"total_bytes"` // leasable: the card's memory, or the limit
	Reserve uint64  `json:"reserve_bytes"`
	Leased  uint64  `json:"leased_bytes"`
	Other   uint64  `json:"used_without_lease_bytes"`
	Free    uint64  `json:"free_bytes"`
	Leases  []Lease `json:"leases"`
}

// Count returns the account of each GPU. Memory in use beyond what is leased is used
// without a lease and counts as taken. An exclusive lease covers all memory.
func Count(gpus []GPU, leases []Lease, limits Limits) []Account {
	accounts := make([]Account, len(gpus))
	for i, g := range gpus {
		a := Account{GPU: g, Label: g.Label, Total: g.Total, Reserve: limits.Reserve, Leases: []Lease{}}
		if limits.Memory > 0 {
			a.Total = min(a.Total, limits.Memory)
		}
		for _, l := range leases {
			if l.on(g) {
				a.Leases = append(a.Leases, l)
				a.Leased += min(l.Memory, math.MaxUint64-a.Leased) // the file is not trusted
			}
		}
		sortLeases(a.Leases)
		if a.Exclusive() {
			a.Leased = a.Total
		}
		a.Other = sub(g.Used, a.Leased)
		a.Free = sub(sub(sub(a.Total, a.Reserve), a.Leased), a.Other)
		accounts[i] = a
	}
	return accounts
}

// sub is a - b, but never below 0.
func sub(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

// Exclusive reports whether a lease holds the whole GPU.
func (a Account) Exclusive() bool {
	return slices.ContainsFunc(a.Leases, func(l Lease) bool { return l.Exclusive })
}

// suits reports whether this much memory, or (0) the whole GPU, is available. A GPU
// of unknown memory can only be leased whole.
func (a Account) suits(memory uint64) bool {
	if memory == 0 {
		return len(a.Leases) == 0
	}
	return !a.Exclusive() && memory <= a.Free
}

// HeldBy names the holders of its leases: "GPU 0 is held by nightly (…)".
func (a Account) HeldBy() string {
	return fmt.Sprintf("%s is held by %s", a.Label, holders(a.Leases))
}

// why explains, with figures, why the GPU cannot be leased.
func (a Account) why(memory uint64) string {
	switch {
	case memory == 0 || a.Exclusive():
		return a.HeldBy()
	case a.GPU.Total == 0:
		return fmt.Sprintf("%s does not report its memory: it can only be leased whole", a.Label)
	}
	text := fmt.Sprintf("%s has %s", a.Label, mib(a.Total))
	if len(a.Leases) > 0 {
		text += fmt.Sprintf(", %s leased to %s", mib(a.Leased), holders(a.Leases))
	}
	if a.Other > 0 {
		text += fmt.Sprintf(", %s used without a lease", mib(a.Other))
	}
	if a.Reserve > 0 {
		text += fmt.Sprintf(", %s kept in reserve", mib(a.Reserve))
	}
	return fmt.Sprintf("%s: %s free, %s requested", text, mib(a.Free), mib(memory))
}

// holders names the holders of the first few leases.
func holders(leases []Lease) string {
	const shown = 4
	var names []string
	for _, l := range leases[:min(len(leases), shown)] {
		names = append(names, l.String())
	}
	if more := len(leases) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func sortLeases(leases []Lease) {
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}
