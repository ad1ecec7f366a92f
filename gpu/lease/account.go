package lease

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits are what of each GPU may be given away at all.
type Limits struct {
	// Memory is how many bytes of each GPU may be leased; 0: all it has.
	Memory uint64
	// Reserve is how many bytes stay free of leases.
	Reserve uint64
}

// Account is what of one GPU is taken, and by whom.
type Account struct {
	GPU     GPU     `json:"-"`
	Label   string  `json:"gpu"`
	Total   uint64  `json:"total_bytes"` // that may be leased: the card's, or the limit
	Reserve uint64  `json:"reserve_bytes"`
	Leased  uint64  `json:"leased_bytes"`
	Other   uint64  `json:"used_without_lease_bytes"`
	Free    uint64  `json:"free_bytes"`
	Leases  []Lease `json:"leases"`
}

// Count makes the account of each GPU. Memory in use beyond what is leased belongs
// to somebody without a lease, and counts as taken. Of an exclusive lease's holder
// everything is its own.
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
				a.Leased += min(l.Memory, math.MaxUint64-a.Leased) // a file may say anything
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

// sub is a - b, 0 where that would be below it.
func sub(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

// Exclusive reports whether somebody holds all of it.
func (a Account) Exclusive() bool {
	return slices.ContainsFunc(a.Leases, func(l Lease) bool { return l.Exclusive })
}

// suits reports whether so much memory, or (0) the whole GPU, can be had. A GPU
// whose memory is not known is given whole or not at all.
func (a Account) suits(memory uint64) bool {
	if memory == 0 {
		return len(a.Leases) == 0
	}
	return !a.Exclusive() && memory <= a.Free
}

// HeldBy is a clause about who has leases of it: "GPU 0 is held by nightly (…)".
func (a Account) HeldBy() string {
	if slices.ContainsFunc(a.Leases, func(l Lease) bool { return !l.unknownGPU() }) {
		return fmt.Sprintf("%s is held by %s", a.Label, holders(a.Leases))
	}
	return fmt.Sprintf("%s may be the one that is held by %s, whose gpurun is older and does not say which", a.Label, holders(a.Leases))
}

// why says what stands in the way, with the figures.
func (a Account) why(memory uint64) string {
	switch {
	case memory == 0 || a.Exclusive():
		return a.HeldBy()
	case a.GPU.Total == 0:
		return fmt.Sprintf("%s does not tell its memory: it can be had only whole", a.Label)
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
	return fmt.Sprintf("%s: %s free, %s asked for", text, mib(a.Free), mib(memory))
}

// holders names who has leases: the first few.
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
