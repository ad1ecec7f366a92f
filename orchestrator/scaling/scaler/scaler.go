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

// interval is how often the number of workers is reconsidered while it is searched for, and
// restInterval when it is settled.
const (
	interval     = 250 * time.Millisecond
	restInterval = 2 * time.Second
)

// Fleet is the slots of a job.
type Fleet interface {
	// Work returns what the slots that match have done.
	Work(of func(event.Slot) bool) Work
	// Health returns what the monitor knows about a device. Sample makes it look at once.
	Health(device string) (gpu.Health, bool)
	Sample()
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
	Ready, Loading          int           // slots whose kernel has computed something, and the others
	Cold                    time.Duration // how long one of those has been computing its first batch; 0 if none does
	Records, Bytes, Batches int64
	Busy                    time.Duration // in which their kernels had work
	Load                    time.Duration // how long one more kernel takes to open: the longest of theirs, less what it would share
	Unsteady                bool          // their rates mean nothing now
	BatchSize               int           // that the search of a worker found
	PIDs                    []int         // of their workers
	Templates               []int         // the processes whose children are their forked interpreters
}

// Scaler adds and removes workers of a fleet. If the number of workers is fixed, it has no groups
// and does nothing.
type Scaler struct {
	Options
	fleet  Fleet
	start  time.Time
	meter  *resources.Meter
	wake   chan struct{} // holds a token when a decision is due at once
	recent []jobProgress

	mu     sync.Mutex
	groups []*group
	saved  map[string]Saved // in the job folder
}

// group is a device, or all CPU devices, with its workers. The scaler's lock guards it.
type group struct {
	scaler  *Scaler
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
	steady  time.Time       // since when these workers compute
	outcome event.ScalingReport
}

// place is a slot with its worker.
type place struct {
	slot    event.Slot
	worker  Worker
	threads int // its share of the cores
	stale   int // reports of its worker that may be about the time before another left
}

// New returns the scaler of a fleet.
func New(f Fleet, o Options) *Scaler {
	s := &Scaler{Options: o, fleet: f, start: time.Now(), wake: make(chan struct{}, 1)}
	for _, slot := range s.Slots {
		if s.group(slot) == nil {
			s.groups = append(s.groups, s.newGroup(slot))
		}
	}
	return s
}

func (s *Scaler) newGroup(slot event.Slot) *group {
	onCPU := slot.Devices[0].Kind == gpu.CPU
	g := &group{scaler: s, name: slot.Key(), of: slot.SharesDevice}
	if onCPU {
		g.name, g.of = "CPU", func(event.Slot) bool { return true }
	}
	workers := 0
	for _, other := range s.Slots {
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
	if onCPU {
		g.search = scaling.Down(workers)
	}
	g.outcome = event.ScalingReport{Device: g.name, Workers: workers}
	s.fleet.Share(g.of, workers > 1 && !onCPU)
	return g
}

func (s *Scaler) group(slot event.Slot) *group {
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
	every := cmp.Or(s.Every, interval)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	step := func() {
		if s.step(ctx) {
			ticker.Reset(cmp.Or(s.Every, restInterval))
		} else {
			ticker.Reset(every)
		}
	}
	for {
		select {
		case <-ticker.C:
			step()
		case <-s.wake:
			step()
		case <-s.fleet.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// step decides about every device, and reports whether all are settled.
func (s *Scaler) step(ctx context.Context) (settled bool) {
	if !s.fleet.Hungry() {
		return false
	}
	settled = true
	host, left, running := s.meter.Sample(), s.remaining(), resources.System{}.Processes()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if s.fleet.IsSick(g.name) {
			continue
		}
		f := g.figures(host, running, left)
		d := g.search.Step(f)
		settled = settled && d.Settled
		g.apply(ctx, f, d)
	}
	s.save()
	return settled
}

// Started records that a slot runs.
func (s *Scaler) Started(slot event.Slot, worker Worker) {
	s.with(slot, func(g *group) { g.join(slot, worker) })
}

// with calls use with the group of a slot, if it has one.
func (s *Scaler) with(slot event.Slot, use func(*group)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(slot); g != nil {
		use(g)
	}
}

// Leaves records that a slot's worker has exited: what the other workers still report about
// memory may be about the time before.
func (s *Scaler) Leaves(slot event.Slot) {
	s.with(slot, func(g *group) {
		for _, p := range g.places {
			p.stale = staleReports
		}
	})
}

// Departed records that a slot has left; its place can be taken again.
func (s *Scaler) Departed(slot event.Slot) {
	s.with(slot, func(g *group) {
		g.places = slices.DeleteFunc(g.places, func(p *place) bool { return p.slot.Number == slot.Number })
		g.reserve = append(g.reserve, slot)
		slices.SortFunc(g.reserve, func(a, b event.Slot) int { return cmp.Compare(a.Rank, b.Rank) })
	})
}

// Refused records that a kernel could not be opened next to the kernels of other workers.
func (s *Scaler) Refused(slot event.Slot, e *fault.Error) {
	s.Emit(event.Notice{Text: fmt.Sprintf("%s: no further worker: %s", slot.Name, e.Message)})
	s.with(slot, func(g *group) {
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
	if !alone && !g.relieving() { // otherwise one is leaving already
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
		leaving = g.relieving()
		s.mu.Unlock()
	}
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
