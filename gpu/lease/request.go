package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Request describes the leases that a caller wants.
type Request struct {
	// Name names the service or the job.
	Name string
	// GPUs asks the driver for the GPUs to choose from. It is called for every attempt,
	// and never while the folder is locked.
	GPUs func(context.Context) ([]GPU, error)
	// Each requests all of GPUs. Otherwise Number of them are requested; 0 means as
	// many as are available, at least one and at most AtMost (0: no limit). The result
	// is a multiple of PerGroup: the GPUs of one group serve one worker.
	Each     bool
	Number   int
	AtMost   int
	PerGroup int
	// Memory is in bytes on each GPU; 0 requests exclusive use.
	Memory uint64
	// Prefer is the index of the GPU to take first, -1 for none.
	Prefer int
	// Owned leases end with this process; others expire after TTL, or never (0).
	Owned bool
	TTL   time.Duration
	// OneOfAName rejects a name that already holds a lease: of any GPU, or, if the user
	// has named GPUs (Named), of one of those.
	OneOfAName bool
	Named      bool

	Limits Limits
	// Quota limits the service.
	Quota Quota

	// Wait is how long to wait for GPUs that others hold. Waiting is called with the
	// reason, once and whenever it changes.
	Wait    time.Duration
	Waiting func(why string)
}

// Refusal is why a request was not met. Its kind is fault.NoDevice.
type Refusal struct {
	Name string
	// Never means that waiting cannot help.
	Never  bool
	why    string
	waited time.Duration
}

// Error gives the figures of every GPU considered.
func (r *Refusal) Error() string {
	text := "no GPU for " + r.Name + ": " + r.why
	if r.waited >= time.Second/10 {
		text += fmt.Sprintf(" (waited %s)", r.waited.Round(time.Second/10))
	}
	return text
}

// choose decides which GPUs are taken, or why none. It is a pure function.
func choose(r Request, gpus []GPU, living []Lease) (Preview, *Refusal) {
	accounts := Count(gpus, living, r.Limits)
	refusal := &Refusal{Name: r.Name}
	if why := r.tooMuch(accounts); why != "" {
		refusal.why, refusal.Never = why, true
		return Preview{}, refusal
	}
	room := r.Quota.room(r, living)
	if room < r.least(len(accounts)) {
		refusal.why = r.Quota.why(r, living)
		return Preview{}, refusal
	}
	var suited []Account
	var reasons []string
	missing := make(map[string]string)
	for _, a := range accounts {
		if a.suits(r.Memory) {
			suited = append(suited, a)
			continue
		}
		missing[a.GPU.Key] = a.why(r.Memory)
		reasons = append(reasons, missing[a.GPU.Key])
	}
	wanted := r.wanted(len(accounts), min(len(suited), room))
	if wanted == 0 {
		refusal.why = strings.Join(reasons, "; ")
		if r.Number > 1 && len(suited) > 0 {
			refusal.why = fmt.Sprintf("%d of %d are free; %s", len(suited), r.Number, refusal.why)
		}
		return Preview{}, refusal
	}
	if wanted < len(suited) {
		slices.SortStableFunc(suited, r.compare)
	}
	p := Preview{Missing: missing}
	for _, a := range suited[:wanted] {
		p.GPUs = append(p.GPUs, a.GPU)
	}
	return p, nil
}

// least is the least number of GPUs that satisfies the request.
func (r Request) least(all int) int {
	if r.Each {
		return all
	}
	return max(1, r.Number, r.PerGroup)
}

// wanted is how many of the suitable GPUs are taken; 0 if there are not enough.
func (r Request) wanted(all, suited int) int {
	group := max(1, r.PerGroup)
	switch {
	case suited < r.least(all):
		return 0
	case r.Each:
		return all
	case r.Number > 0:
		return r.Number
	}
	if r.AtMost > 0 {
		suited = min(suited, r.AtMost)
	}
	return suited / group * group
}

// compare orders the preferred GPU first, then by free memory, most first.
func (r Request) compare(a, b Account) int {
	if r.Prefer >= 0 && a.GPU.Index != b.GPU.Index {
		switch r.Prefer {
		case a.GPU.Index:
			return -1
		case b.GPU.Index:
			return 1
		}
	}
	return cmp.Or(cmp.Compare(b.Free, a.Free), cmp.Compare(a.GPU.Index, b.GPU.Index))
}

// tooMuch explains why even an idle machine could not meet the request.
func (r Request) tooMuch(accounts []Account) string {
	if len(accounts) == 0 {
		return "there are no GPUs"
	}
	if needed := r.least(len(accounts)); needed > len(accounts) {
		return fmt.Sprintf("%d requested, but there are only %d", needed, len(accounts))
	}
	if r.Memory == 0 {
		return ""
	}
	fitting := 0
	largest := accounts[0]
	for _, a := range accounts {
		if r.Memory <= sub(a.Total, a.Reserve) {
			fitting++
		}
		if a.Total > largest.Total {
			largest = a
		}
	}
	if fitting >= r.least(len(accounts)) {
		return ""
	}
	return fmt.Sprintf("%s requested, but the largest, %s, has %s, of which %s are kept in reserve",
		mib(r.Memory), largest.Label, mib(largest.Total), mib(largest.Reserve))
}
