package orchestrator

import (
	"cmp"
	"slices"
	"time"
)

// StartReport is how the workers of a job started.
type StartReport struct {
	// First is the start of the first worker. It has waited for imports that others share.
	First Start `json:"first"`
	// Further is how many other workers started, Typical the median of each phase of theirs.
	Further int    `json:"further"`
	Typical *Start `json:"typical,omitempty"`
}

// startsOf returns how workers started; nil if none did.
func startsOf(workers []WorkerReport) *StartReport {
	var started []WorkerReport
	for _, w := range workers {
		if w.Start.Took() > 0 && !w.Opened.IsZero() {
			started = append(started, w)
		}
	}
	if len(started) == 0 {
		return nil
	}
	slices.SortStableFunc(started, func(a, b WorkerReport) int { return a.Opened.Compare(b.Opened) })
	further := started[1:]
	r := &StartReport{First: started[0].Start, Further: len(further)}
	if len(further) > 0 {
		median := func(phase func(Start) time.Duration) time.Duration {
			middle := slices.SortedFunc(slices.Values(further), func(a, b WorkerReport) int { return cmp.Compare(phase(a.Start), phase(b.Start)) })
			return phase(middle[len(middle)/2].Start)
		}
		r.Typical = &Start{
			Phase:      further[0].Start.Phase,
			Importing:  median(func(s Start) time.Duration { return s.Importing }),
			Loading:    median(func(s Start) time.Duration { return s.Loading }),
			FirstBatch: median(func(s Start) time.Duration { return s.FirstBatch }),
		}
	}
	return r
}
