package orchestrator

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
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// scaleInterval is how often the number of workers is reconsidered.
const scaleInterval = 2 * time.Second

// scaler adds and removes workers while the job runs, as package scaling decides. A nil
// scaler, for a job whose number of workers is fixed, does nothing.
type scaler struct {
	job    *job
	start  func(Slot) *slotRun // starts a slot
	meter  *resources.Meter
	wake   chan struct{} // holds a token when a decision is due at once
	recent []jobProgress

	mu     sync.Mutex
	groups []*scaled
	saved  map[string]savedWorkers // in the job folder
}

// scaled is a device, or all CPU devices, with its workers.
type scaled struct {
	name    string
	of      func(Slot) bool
	search  *scaling.Search
	reserve []Slot           // that may still be added, in order
	runs    []*slotRun       // that have not left, oldest first
	shares  map[*slotRun]int // of the cores, by worker
	leased  uint64           // device memory beyond the job's first lease
	stale   map[*slotRun]int // reports of each worker that may be about the time before another left
	ooms    int
	refused int

	before  scaling.Figures // the last ones
	trees   treeTime        // of the processes, at that time
	load    []float64       // the GPU's last utilizations
	sampled time.Time       // of the last of them
	outcome ScalingReport
}

// ScalingReport is how many workers a device got, and why not more.
type ScalingReport struct {
	Device  string `json:"device"`
	Workers int    `json:"workers"`
	Reason  string `json:"reason,omitempty"`
}

// String returns a line for people: "GPU 0: 6 workers, 8 brought 2 %".
func (r ScalingReport) String() string {
	text := fmt.Sprintf("%s: %d workers", r.Device, r.Workers)
	if r.Workers == 1 {
		text = fmt.Sprintf("%s: 1 worker", r.Device)
	}
	if r.Reason != "" {
		text += ", " + r.Reason
	}
	return text
}

// newScaler returns the scaler of a job, nil if its number of workers is fixed.
func newScaler(j *job) *scaler {
	if !j.auto() {
		return nil
	}
	s := &scaler{job: j, wake: make(chan struct{}, 1)}
	for _, slot := range j.plan.Slots {
		if s.group(slot) == nil {
			s.groups = append(s.groups, s.newGroup(slot))
		}
	}
	return s
}

func (s *scaler) newGroup(slot Slot) *scaled {
	g := &scaled{name: slot.key(), shares: make(map[*slotRun]int), stale: make(map[*slotRun]int), of: func(other Slot) bool { return other.key() == slot.key() }}
	if slot.Devices[0].Kind == gpu.CPU {
		g.name, g.of = "CPU", func(Slot) bool { return true }
	}
	workers := 0
	for _, other := range s.job.plan.Slots {
		if g.of(other) {
			workers++
		}
	}
	for _, other := range s.job.reserve {
		if g.of(other) {
			g.reserve = append(g.reserve, other)
		}
	}
	g.search = scaling.Up(workers, s.job.resumedWorkers[g.name].Settled)
	if slot.Devices[0].Kind == gpu.CPU {
		g.search = scaling.Down(workers)
	}
	g.outcome = ScalingReport{Device: g.name, Workers: workers}
	s.job.fleet.setSharing(g.of, workers > 1 && slot.Devices[0].Kind != gpu.CPU)
	return g
}

func (s *scaler) group(slot Slot) *scaled {
	for _, g := range s.groups {
		if g.of(slot) {
			return g
		}
	}
	return nil
}

// run reconsiders the number of workers until no work remains.
func (s *scaler) run(ctx context.Context) {
	if s == nil {
		return
	}
	s.meter = resources.NewMeter(resources.System{})
	every := time.Duration(float64(scaleInterval) / s.speed())
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.step(ctx)
		case <-s.wake:
			s.step(ctx)
		case <-s.job.queue.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// speed is by how much tests make the scaler's time run faster.
func (s *scaler) speed() float64 { return max(1, s.job.config.scaleSpeed) }

// step decides about every device.
func (s *scaler) step(ctx context.Context) {
	if !s.job.state.running() || s.job.queue.dry() {
		return
	}
	host := s.meter.Sample()
	if s.job.config.scaleSpeed > 0 {
		host.Idle = -1
	}
	left := s.remaining()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if s.job.suspects.isSick(g.name) {
			continue
		}
		f := s.figures(g, host, left)
		s.apply(ctx, g, f, g.search.Step(f))
	}
	s.save()
}

// apply carries out a decision.
func (s *scaler) apply(ctx context.Context, g *scaled, f scaling.Figures, d scaling.Decision) {
	from := len(g.runs)
	if d.Workers > from {
		if why := s.lease(ctx, g, f, d.Workers-from); why != "" {
			d = g.search.Refuse(f, why)
		}
	}
	for len(g.runs) < d.Workers && s.add(g, d.Workers) {
	}
	for len(g.runs) > d.Workers {
		i := s.dispensable(g)
		run := g.runs[i]
		g.runs = slices.Delete(g.runs, i, i+1)
		run.dismiss()
	}
	if len(g.runs) == 1 { // the others may still be leaving, but no longer count on it
		s.job.fleet.setSharing(g.of, false)
	}
	if d.Reason != "" || from != len(g.runs) {
		g.outcome.Workers, g.outcome.Reason = len(g.runs), d.Reason
		s.job.emit(WorkersScaled{ScalingReport: g.outcome, From: from, Settled: d.Settled})
	}
	if d.Settled {
		s.fitThreads(g, f)
	}
}

// dispensable returns which worker leaves first: the newest of those that do not compute,
// else the newest.
func (s *scaler) dispensable(g *scaled) int {
	for i := len(g.runs) - 1; i >= 0; i-- {
		if !s.job.fleet.isReady(g.runs[i].slot) {
			return i
		}
	}
	return len(g.runs) - 1
}

// lease acquires device memory for added workers if they would use more than the job
// holds, and returns why it cannot.
func (s *scaler) lease(ctx context.Context, g *scaled, f scaling.Figures, added int) string {
	claim := s.job.claim
	if claim == nil || claim.Memory == 0 || f.DeviceEach == 0 {
		return ""
	}
	needed := uint64(float64(f.DeviceEach) * float64(f.Workers+added) * scaling.Margin)
	held := claim.Memory + g.leased
	if needed <= held {
		return ""
	}
	if claim.More == nil {
		return fmt.Sprintf("%d MiB are leased and a worker uses %d", held>>20, f.DeviceEach>>20)
	}
	for _, device := range g.runs[0].slot.Devices {
		if err := claim.More(ctx, device, needed-held); err != nil {
			return fmt.Sprintf("no further lease: %v", err)
		}
	}
	g.leased += needed - held
	return ""
}

// add starts another worker on a device. It returns false if there is no place for it.
func (s *scaler) add(g *scaled, planned int) bool {
	if len(g.reserve) == 0 {
		return false
	}
	slot := g.reserve[0]
	slot.added, slot.Threads = true, s.threads(planned)
	slot, ok := s.job.fleet.enlist(slot)
	if !ok {
		return false
	}
	g.reserve = g.reserve[1:]
	s.job.fleet.setSharing(g.of, slot.Devices[0].Kind != gpu.CPU)
	s.job.queue.join(slot.key())
	g.take(s.start(slot))
	return true
}

// threads returns each worker's share of the cores if every device has this number of workers.
func (s *scaler) threads(workers int) int {
	return max(1, s.job.config.cores()/(len(s.groups)*workers))
}

// fitThreads restarts a worker whose share of the cores is far from what it would get
// now, one at a time, if that pays off in the remaining time.
func (s *scaler) fitThreads(g *scaled, f scaling.Figures) {
	if f.Loading > 0 || f.Workers != len(g.runs) || g.name == "CPU" {
		return
	}
	share := s.threads(len(g.runs))
	var odd []*slotRun
	for _, run := range g.runs {
		if have := g.shares[run]; have > 2*share || 2*have < share {
			odd = append(odd, run)
		}
	}
	// A restart costs a worker's share of the rate while it loads; fewer threads that
	// compete are expected to bring a twentieth.
	cost := f.Load.Seconds() * float64(len(odd)) / float64(len(g.runs))
	if len(odd) > 0 && f.Remaining.Seconds()/20 > cost {
		g.shares[odd[0]] = share
		odd[0].restart(share)
	}
}

// started records that a slot runs.
func (s *scaler) started(run *slotRun) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(run.slot); g != nil {
		g.take(run)
	}
}

// take adds a slot that runs.
func (g *scaled) take(run *slotRun) {
	g.runs = append(g.runs, run)
	g.shares[run] = run.slot.Threads
}

// leaves records that a slot's worker has exited: what the other workers still report about
// memory may be about the time before.
func (s *scaler) leaves(run *slotRun) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(run.slot); g != nil {
		for _, other := range g.runs {
			g.stale[other] = staleReports
		}
	}
}

// departed records that a slot has left; its place can be taken again.
func (s *scaler) departed(run *slotRun) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(run.slot); g != nil {
		delete(g.stale, run)
		delete(g.shares, run)
		g.runs = slices.DeleteFunc(g.runs, func(other *slotRun) bool { return other == run })
		g.reserve = append(g.reserve, run.slot)
		slices.SortFunc(g.reserve, func(a, b Slot) int { return cmp.Compare(a.rank, b.rank) })
	}
}

// refused records that a kernel could not be opened next to those of other workers.
func (s *scaler) refused(slot Slot, e *fault.Error) {
	s.job.emit(Notice{Text: fmt.Sprintf("%s: no further worker: %s", slot.Name, e.Message)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(slot); g != nil {
		if e.Kind == fault.OOM {
			g.ooms++
		} else {
			g.refused++
		}
	}
	s.nudge()
}

// crowdedWait is how long a worker waits for another one to leave.
const crowdedWait = 30 * time.Second

// crowded handles a batch that did not fit in the memory that several workers share: one
// of them leaves before the batch is tried again.
func (s *scaler) crowded(ctx context.Context, run *slotRun) {
	if s == nil {
		return
	}
	s.mu.Lock()
	g := s.group(run.slot)
	alone := g == nil || len(g.runs) < 2 || g.isStale(run)
	if !alone && !s.relieving(g) { // otherwise one is leaving already
		g.ooms++
		s.nudge()
	}
	s.mu.Unlock()
	deadline := time.Now().Add(crowdedWait)
	for !alone && !run.mustLeave() && ctx.Err() == nil && time.Now().Before(deadline) && !s.relieved(g) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.job.queue.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// staleReports is how many tasks a worker may have that began before another worker left:
// the current one and the prefetched one.
const staleReports = 2

// isStale reports whether a batch that did not fit may have failed before the last worker
// left: then it says nothing about those that stayed.
func (g *scaled) isStale(run *slotRun) bool {
	if g.stale[run] == 0 {
		return false
	}
	g.stale[run]--
	return true
}

// relieved reports whether the workers that had to leave have left.
func (s *scaler) relieved(g *scaled) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.relieving(g)
}

// relieving reports whether a worker leaves because memory ran out. The caller must hold
// s.mu.
func (s *scaler) relieving(g *scaled) bool {
	w := s.job.fleet.work(g.of)
	return g.ooms != g.before.OOMs || w.ready+w.loading > len(g.runs)
}

// nudge makes the scaler decide at once.
func (s *scaler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tuned lets an added worker start with the batch size that the search of an earlier one
// has found: two searches on one device would disturb each other.
func (s *scaler) tuned(slot Slot, setup *wire.Setup) {
	if s == nil || !slot.added || !setup.Records.AutoBatch {
		return
	}
	if size := s.job.fleet.work(func(other Slot) bool { return other.key() == slot.key() }).batchSize; size > 0 {
		setup.Records.BatchSize = size
	}
	setup.Records.AutoBatch = false
}

// report returns how many workers each device got.
func (s *scaler) report() (list []ScalingReport) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		list = append(list, g.outcome)
	}
	return list
}
