// Package scaler adds and removes workers while a job runs, as package scaling decides. It
// measures what a decision needs, and asks the fleet for workers through an interface.
package scaler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// Interval is how often the number of workers is reconsidered.
const Interval = 2 * time.Second

// Fleet is the slots of a job.
type Fleet interface {
	// Work returns what the slots that match have done.
	Work(of func(event.Slot) bool) Work
	// Health returns what the monitor knows about a device.
	Health(device string) (gpu.Health, bool)
	// IsSick reports whether a device was retired for the job.
	IsSick(device string) bool
	// Progress returns how many records are done, and of how many; negative if unknown.
	Progress() (done, total int64)
	// Hungry reports whether another worker would find something to compute. Done is closed when
	// none ever will.
	Hungry() bool
	Done() <-chan struct{}
	// Share notifies the workers of the slots that match whether added ones share their
	// device's memory.
	Share(of func(event.Slot) bool, added bool)
	// Add starts a slot and returns it with its number; false if there is no place for it.
	Add(event.Slot) (event.Slot, Worker, bool)
}

// Worker is what keeps a slot busy.
type Worker interface {
	Dismiss()            // makes it leave at its next batch boundary
	Restart(threads int) // restarts it there with another share of the cores
}

// Work is what some slots have done since the job began, and what they are doing.
type Work struct {
	Ready, Loading          int // slots with an open kernel, and without
	Records, Bytes, Batches int64
	Busy                    time.Duration // in which their kernels had work
	Load                    time.Duration // the longest time that the last opening of a kernel took
	Unsteady                bool          // their rates mean nothing now
	BatchSize               int           // that the search of a worker found
	PIDs                    []int         // of their workers
}

// Scaler adds and removes workers of a fleet. That of a job whose number of workers is fixed has
// no groups, and does nothing.
type Scaler struct {
	Options
	fleet  Fleet
	start  time.Time
	meter  *resources.Meter
	wake   chan struct{} // holds a token when a decision is due at once
	recent []jobProgress

	mu     sync.Mutex
	groups []*scaled
	saved  map[string]Saved // in the job folder
}

// scaled is a device, or all CPU devices, with its workers.
type scaled struct {
	name    string
	of      func(event.Slot) bool
	search  *scaling.Search
	reserve []event.Slot // that may still be added, in order
	places  []*place     // that were not dismissed, oldest first
	leased  uint64       // device memory beyond the job's first lease
	ooms    int
	refused int

	before  scaling.Figures // the last ones
	trees   treeTime        // of the processes, at that time
	load    []float64       // the GPU's last utilizations
	sampled time.Time       // of the last of them
	outcome event.ScalingReport
}

// place is a slot with its worker.
type place struct {
	slot    event.Slot
	worker  Worker
	threads int // its share of the cores
	stale   int // reports of its worker that may be about the time before another left
}

// New returns the scaler of a fleet that starts with these slots; none if their number is fixed.
func New(f Fleet, slots []event.Slot, o Options) *Scaler {
	s := &Scaler{Options: o, fleet: f, start: time.Now(), wake: make(chan struct{}, 1)}
	for _, slot := range slots {
		if s.group(slot) == nil {
			s.groups = append(s.groups, s.newGroup(slot, slots))
		}
	}
	return s
}

func (s *Scaler) newGroup(slot event.Slot, slots []event.Slot) *scaled {
	g := &scaled{name: slot.Key(), of: slot.SharesDevice}
	if slot.Devices[0].Kind == gpu.CPU {
		g.name, g.of = "CPU", func(event.Slot) bool { return true }
	}
	workers := 0
	for _, other := range slots {
		if g.of(other) {
			workers++
		}
	}
	for _, other := range s.Reserve {
		if g.of(other) {
			g.reserve = append(g.reserve, other)
		}
	}
	g.search = scaling.Up(workers, s.Resumed[g.name].Settled)
	if slot.Devices[0].Kind == gpu.CPU {
		g.search = scaling.Down(workers)
	}
	g.outcome = event.ScalingReport{Device: g.name, Workers: workers}
	s.fleet.Share(g.of, workers > 1 && slot.Devices[0].Kind != gpu.CPU)
	return g
}

func (s *Scaler) group(slot event.Slot) *scaled {
	for _, g := range s.groups {
		if g.of(slot) {
			return g
		}
	}
	return nil
}

// Run reconsiders the number of workers until no work remains.
func (s *Scaler) Run(ctx context.Context) {
	if len(s.groups) == 0 {
		return
	}
	s.meter = resources.NewMeter(resources.System{})
	every := time.Duration(float64(Interval) / s.speed())
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.step(ctx)
		case <-s.wake:
			s.step(ctx)
		case <-s.fleet.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// speed is by how much tests make the scaler's time run faster.
func (s *Scaler) speed() float64 { return max(1, s.Speed) }

// step decides about every device.
func (s *Scaler) step(ctx context.Context) {
	if !s.fleet.Hungry() {
		return
	}
	host := s.meter.Sample()
	if s.Speed > 0 {
		host.Idle = -1
	}
	left := s.remaining()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if s.fleet.IsSick(g.name) {
			continue
		}
		f := s.figures(g, host, left)
		s.apply(ctx, g, f, g.search.Step(f))
	}
	s.save()
}

// apply carries out a decision.
func (s *Scaler) apply(ctx context.Context, g *scaled, f scaling.Figures, d scaling.Decision) {
	from := len(g.places)
	if d.Workers > from {
		if why := s.lease(ctx, g, f, d.Workers-from); why != "" {
			d = g.search.Refuse(f, why)
		}
	}
	for len(g.places) < d.Workers && s.add(g, d.Workers) {
	}
	for len(g.places) > d.Workers {
		i := s.dispensable(g)
		leaving := g.places[i].worker
		g.places = slices.Delete(g.places, i, i+1)
		leaving.Dismiss()
	}
	if len(g.places) == 1 { // the others may still be leaving, but no longer count on it
		s.fleet.Share(g.of, false)
	}
	if d.Reason != "" || from != len(g.places) {
		g.outcome.Workers, g.outcome.Reason = len(g.places), d.Reason
		s.Emit(event.WorkersScaled{ScalingReport: g.outcome, From: from, Settled: d.Settled})
	}
	if d.Settled {
		s.fitThreads(g, f)
	}
}

// dispensable returns which worker leaves first: the newest of those that do not compute,
// else the newest.
func (s *Scaler) dispensable(g *scaled) int {
	for i := len(g.places) - 1; i >= 0; i-- {
		if s.fleet.Work(func(slot event.Slot) bool { return slot.Number == g.places[i].slot.Number }).Ready == 0 {
			return i
		}
	}
	return len(g.places) - 1
}

// lease acquires device memory for added workers if they would use more than the job
// holds, and returns why it cannot.
func (s *Scaler) lease(ctx context.Context, g *scaled, f scaling.Figures, added int) string {
	if s.Memory == 0 || f.DeviceEach == 0 {
		return ""
	}
	needed := uint64(float64(f.DeviceEach) * float64(f.Workers+added) * scaling.Margin)
	held := s.Memory + g.leased
	if needed <= held {
		return ""
	}
	if s.More == nil {
		return fmt.Sprintf("%d MiB are leased and a worker uses %d", held>>20, f.DeviceEach>>20)
	}
	for _, device := range g.places[0].slot.Devices {
		if err := s.More(ctx, device, needed-held); err != nil {
			return fmt.Sprintf("no further lease: %v", err)
		}
	}
	g.leased += needed - held
	return ""
}

// add starts another worker on a device. It returns false if there is no place for it.
func (s *Scaler) add(g *scaled, planned int) bool {
	if len(g.reserve) == 0 {
		return false
	}
	slot := g.reserve[0]
	slot.Added, slot.Threads = true, s.threads(planned)
	slot, worker, ok := s.fleet.Add(slot)
	if !ok {
		return false
	}
	g.reserve = g.reserve[1:]
	g.take(slot, worker)
	return true
}

// threads returns each worker's share of the cores if every device has this number of workers.
func (s *Scaler) threads(workers int) int {
	return max(1, s.Cores/(len(s.groups)*workers))
}

// fitThreads restarts a worker whose share of the cores is far from what it would get
// now, one at a time, if that pays off in the remaining time.
func (s *Scaler) fitThreads(g *scaled, f scaling.Figures) {
	if f.Loading > 0 || f.Workers != len(g.places) || g.name == "CPU" {
		return
	}
	share := s.threads(len(g.places))
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

// Started records that a slot runs.
func (s *Scaler) Started(slot event.Slot, worker Worker) {
	s.with(slot, func(g *scaled) { g.take(slot, worker) })
}

// with calls use with the group of a slot, if it has one.
func (s *Scaler) with(slot event.Slot, use func(*scaled)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(slot); g != nil {
		use(g)
	}
}

// take adds a slot that runs.
func (g *scaled) take(slot event.Slot, worker Worker) {
	g.places = append(g.places, &place{slot: slot, worker: worker, threads: slot.Threads})
}

// Leaves records that a slot's worker has exited: what the other workers still report about
// memory may be about the time before.
func (s *Scaler) Leaves(slot event.Slot) {
	s.with(slot, func(g *scaled) {
		for _, p := range g.places {
			p.stale = staleReports
		}
	})
}

// Departed records that a slot has left; its place can be taken again.
func (s *Scaler) Departed(slot event.Slot) {
	s.with(slot, func(g *scaled) {
		g.places = slices.DeleteFunc(g.places, func(p *place) bool { return p.slot.Number == slot.Number })
		g.reserve = append(g.reserve, slot)
		slices.SortFunc(g.reserve, func(a, b event.Slot) int { return cmp.Compare(a.Rank, b.Rank) })
	})
}

// Refused records that a kernel could not be opened next to those of other workers.
func (s *Scaler) Refused(slot event.Slot, e *fault.Error) {
	s.Emit(event.Notice{Text: fmt.Sprintf("%s: no further worker: %s", slot.Name, e.Message)})
	s.with(slot, func(g *scaled) {
		if e.Kind == fault.OOM {
			g.ooms++
		} else {
			g.refused++
		}
	})
	s.nudge()
}

// crowdedWait is how long a worker waits for another one to leave.
const crowdedWait = 30 * time.Second

// Crowded handles a batch that did not fit in the memory that several workers share: one
// of them leaves before the batch is tried again. mustLeave: it is the slot itself.
func (s *Scaler) Crowded(ctx context.Context, slot event.Slot, mustLeave func() bool) {
	s.mu.Lock()
	g := s.group(slot)
	alone := g == nil || len(g.places) < 2 || g.isStale(slot)
	if !alone && !s.relieving(g) { // otherwise one is leaving already
		g.ooms++
		s.nudge()
	}
	s.mu.Unlock()
	deadline := time.Now().Add(crowdedWait)
	for leaving := !alone; leaving && !mustLeave() && time.Now().Before(deadline); {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.fleet.Done():
			return
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		leaving = s.relieving(g)
		s.mu.Unlock()
	}
}

// staleReports is how many tasks a worker may have that began before another worker left:
// the current one and the prefetched one.
const staleReports = 2

// isStale reports whether a batch that did not fit may have failed before the last worker
// left: then it says nothing about those that stayed.
func (g *scaled) isStale(slot event.Slot) bool {
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

// relieving reports whether a worker leaves because memory ran out. The caller must hold
// s.mu.
func (s *Scaler) relieving(g *scaled) bool {
	w := s.fleet.Work(g.of)
	return g.ooms != g.before.OOMs || w.Ready+w.Loading > len(g.places)
}

// nudge makes the scaler decide at once.
func (s *Scaler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Report returns how many workers each device got.
func (s *Scaler) Report() (list []event.ScalingReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		list = append(list, g.outcome)
	}
	return list
}
