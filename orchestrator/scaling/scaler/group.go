package scaler

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// apply carries out a decision.
func (g *group) apply(ctx context.Context, f scaling.Figures, d scaling.Decision) {
	from := len(g.places)
	if d.Workers > from {
		if why := g.lease(ctx, f, d.Workers-from); why != "" {
			d = g.search.Refuse(f, why)
		}
	}
	for len(g.places) < d.Workers && g.add(d.Workers) {
	}
	for len(g.places) > d.Workers {
		i := g.dispensable()
		leaving := g.places[i].worker
		g.places = slices.Delete(g.places, i, i+1)
		leaving.Dismiss()
	}
	if len(g.places) == 1 { // the others may still be leaving, but no longer count on it
		g.scaler.fleet.Share(g.of, false)
	}
	if d.Reason != "" || from != len(g.places) {
		g.outcome.Workers, g.outcome.Reason = len(g.places), d.Reason
		g.scaler.Emit(event.WorkersScaled{ScalingReport: g.outcome, From: from, Settled: d.Settled})
	}
	if d.Settled {
		g.fitThreads(f)
	}
}

// dispensable returns which worker leaves first: the newest of those that do not compute,
// else the newest.
func (g *group) dispensable() int {
	for i, p := range slices.Backward(g.places) {
		if g.scaler.fleet.Work(func(slot event.Slot) bool { return slot.Number == p.slot.Number }).Ready == 0 {
			return i
		}
	}
	return len(g.places) - 1
}

// lease acquires device memory for added workers if they would use more than the job
// holds, and returns why it cannot.
func (g *group) lease(ctx context.Context, f scaling.Figures, added int) string {
	needed := uint64(float64(f.DeviceEach) * float64(f.Workers+added) * scaling.Margin)
	held := g.scaler.Memory + g.leased
	switch {
	case g.scaler.Memory == 0, needed <= held:
		return ""
	case g.scaler.More == nil:
		return fmt.Sprintf("%d MiB are leased and a worker uses %d", held>>20, f.DeviceEach>>20)
	}
	for _, device := range g.places[0].slot.Devices {
		if err := g.scaler.More(ctx, device, needed-held); err != nil {
			return fmt.Sprintf("no further lease: %v", err)
		}
	}
	g.leased += needed - held
	return ""
}

// add starts another worker on a device. It returns false if there is no place for it.
func (g *group) add(planned int) bool {
	if len(g.reserve) == 0 {
		return false
	}
	slot := g.reserve[0]
	slot.Added, slot.Threads = true, g.threads(planned)
	slot, worker, ok := g.scaler.fleet.Add(slot)
	if !ok {
		return false
	}
	g.reserve = g.reserve[1:]
	g.join(slot, worker)
	return true
}

// join adds a slot that runs.
func (g *group) join(slot event.Slot, worker Worker) {
	g.places = append(g.places, &place{slot: slot, worker: worker, threads: slot.Threads})
}

// threads returns each worker's share of the cores if every device has this number of workers.
func (g *group) threads(workers int) int {
	return max(1, g.scaler.Cores/(len(g.scaler.groups)*workers))
}

// fitThreads restarts a worker whose share of the cores is far from what it would get
// now, one at a time, if that pays off in the remaining time.
func (g *group) fitThreads(f scaling.Figures) {
	if f.Loading > 0 || f.Workers != len(g.places) || g.name == "CPU" {
		return
	}
	share := g.threads(len(g.places))
	var odd []*place
	for _, p := range g.places {
		if p.threads > 2*share || 2*p.threads < share {
			odd = append(odd, p)
		}
	}
	// A restart costs a worker's share of the rate while it loads; fewer threads that
	// compete are expected to bring a twentieth.
	cost := f.Load.Seconds() * float64(len(odd)) / float64(len(g.places))
	if len(odd) > 0 && f.Remaining.Seconds()/20 > cost {
		odd[0].threads = share
		odd[0].worker.Restart(share)
	}
}

// staleReports is how many tasks a worker may have that began before another worker left:
// the current one and the prefetched one.
const staleReports = 2

// isStale reports whether a batch that did not fit may have failed before the last worker
// left: then it says nothing about those that stayed.
func (g *group) isStale(slot event.Slot) bool {
	i := slices.IndexFunc(g.places, func(p *place) bool { return p.slot.Number == slot.Number })
	switch {
	case i < 0: // the worker itself was dismissed
		return true
	case g.places[i].stale == 0:
		return false
	}
	g.places[i].stale--
	return true
}

// relieving reports whether a worker leaves because memory ran out.
func (g *group) relieving() bool {
	w := g.scaler.fleet.Work(g.of)
	return g.ooms != g.before.OOMs || w.Ready+w.Loading > len(g.places)
}
