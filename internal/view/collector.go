package view

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/orchestrator"
)

// Collector follows a job's events. Its methods are safe for concurrent use.
type Collector struct {
	now func() time.Time

	mu     sync.Mutex
	view   View // without what View computes
	tally  chunk.Tally
	strip  strip
	course course
	work   growth // of the records that all workers have computed
	tokens growth
	paused bool
	began  time.Time // when the first chunk was
	run    int64     // records that were done or had an answer at the start of this run
	first  int64     // the number of the job's first record
}

// NewCollector returns the collector of a job that has not been planned yet. now is the
// clock.
func NewCollector(now func() time.Time) *Collector {
	return &Collector{now: now, view: New(PhasePreparing)}
}

// Event adds the next event. It returns within microseconds: the job waits for it.
func (c *Collector) Event(event orchestrator.Event) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := event.(type) {
	case orchestrator.Planned:
		c.first = e.First
		c.planned(e, now)
		c.course.begin(e.Folder)
	case orchestrator.Resuming:
		c.resuming(e)
	case orchestrator.WorkerStarted:
		w := c.joined(e)
		w.PID, w.Phase, w.start = e.PID, PhaseOpening, orchestrator.Start{}
	case orchestrator.WorkerPhase:
		c.slot(e.Slot).start = e.Start
	case orchestrator.WorkerReady:
		w := c.slot(e.Slot)
		w.Load, w.Phase = e.Took, PhaseWaiting
	case orchestrator.WorkerLost:
		c.lost(e)
	case orchestrator.WorkerLeft:
		c.view.Done, c.view.Answers = e.Job, e.Answers
		c.slot(e.Slot).leave(PhaseLeft)
	case orchestrator.ChunkStarted:
		w := c.slot(e.Slot)
		w.First, w.Records, w.Done, w.began = e.First, e.Records, 0, now
		w.compute(w.awaits)
		c.measure(w, w.Total, now) // from here on: the time to load a model says nothing about its speed
	case orchestrator.Progress:
		c.progress(e, now)
	case orchestrator.ChunkDone:
		c.chunkDone(e, now)
	case orchestrator.ChunkGivenUp:
		c.tally.Add(e.Counts)
		c.strip.add(e.First-c.first, e.Records, e.Failed)
		for i := range c.view.Workers {
			if w := &c.view.Workers[i]; w.First == e.First {
				w.Again = 0
			}
		}
	case orchestrator.DeviceSample:
		c.sample(e, now)
	case orchestrator.Paused:
		c.paused = true
	case orchestrator.Resumed:
		c.paused = false
	case orchestrator.Stopping:
		c.view.Phase = PhaseStopping
	case orchestrator.Finished:
		c.finished(e.Report)
	}
	switch event.(type) {
	case orchestrator.Planned, orchestrator.Resuming, orchestrator.Notice:
		// What earlier runs have done may not be counted yet.
	default:
		if c.course.history.due(now) && !c.view.Started.IsZero() {
			c.course.add(c.point(now))
		}
	}
	c.course.addEvent(event, now)
}

func (c *Collector) planned(e orchestrator.Planned, now time.Time) {
	v, plan := &c.view, e.Plan
	v.Phase, v.Started, v.Folder, v.BatchSize, v.Total = PhaseRunning, now, e.Folder, plan.BatchSize, plan.Records
	v.Concurrency = plan.Info.Concurrency
	c.strip.total(plan.Records)
	v.Workers, v.Devices = nil, nil
	for _, slot := range plan.Slots {
		w := Worker{Slot: slot.Number, Name: slot.Name, Phase: PhaseWaiting}
		for i, d := range slot.Devices {
			if i == 0 {
				w.Device = d.String()
			}
			if d.UUID != "" {
				w.GPUs = append(w.GPUs, d.UUID)
			}
			if c.device(d.String()) == nil {
				device := newDevice(d.String())
				device.UUID, device.Name, device.ID, device.GPU, device.work = d.UUID, d.Name, d.ID(), d.Kind == gpu.GPU, new(growth)
				v.Devices = append(v.Devices, device)
			}
		}
		v.Workers = append(v.Workers, w)
	}
}

// resuming adds the work of earlier runs.
func (c *Collector) resuming(e orchestrator.Resuming) {
	c.view.Done, c.view.Answers, c.view.Total = e.Job.Counts, e.Answers, e.Total
	c.view.Resumed, c.view.ResumedAnswers = e.Done, e.Answers
	c.run = c.view.Reached()
	c.tally.Add(e.Job)
	for _, r := range e.Ranges {
		c.strip.add(r.First-c.first, r.Records, r.Failed)
	}
}

// slot returns a worker; for an unknown number, one that is shown nowhere.
func (c *Collector) slot(number int) *Worker {
	for i := range c.view.Workers {
		if c.view.Workers[i].Slot == number {
			return &c.view.Workers[i]
		}
	}
	return new(Worker)
}

func (c *Collector) device(label string) *Device {
	for i := range c.view.Devices {
		if c.view.Devices[i].Device == label {
			return &c.view.Devices[i]
		}
	}
	return nil
}

// joined returns the worker that was started, which may not have been planned.
func (c *Collector) joined(e orchestrator.WorkerStarted) *Worker {
	known := slices.ContainsFunc(c.view.Workers, func(w Worker) bool { return w.Slot == e.Slot })
	if !known && !c.view.Started.IsZero() {
		w := Worker{Slot: e.Slot, Name: e.Device, Device: orchestrator.DeviceOf(e.Device)}
		if d := c.device(w.Device); d != nil && d.UUID != "" {
			w.GPUs = []string{d.UUID}
		}
		c.view.Workers = append(c.view.Workers, w)
	}
	return c.slot(e.Slot)
}

// lost follows the loss of a worker.
func (c *Collector) lost(e orchestrator.WorkerLost) {
	w := c.slot(e.Slot)
	w.Lost++
	if w.Phase.HasRecords() {
		w.Again = min(w.Done, max(0, c.view.Reached()-e.Job.Records-e.Answers))
	}
	c.view.Done, c.view.Answers = e.Job, e.Answers
	w.leave(PhaseWaiting)
	if w.awaits = ""; e.Retired { // others compute its records
		w.Phase, w.Again = PhaseRetired, 0
	}
}

// leave ends a worker's process.
func (w *Worker) leave(p Phase) { w.PID, w.Records, w.Done, w.Phase = 0, 0, 0, p }

func (c *Collector) progress(e orchestrator.Progress, now time.Time) {
	c.view.Done, c.view.Answers, c.view.Total, c.view.Estimate = e.Job, e.Answers, e.Total, e.Estimate
	w := c.slot(e.Slot)
	w.Done, w.Records = e.Chunk.Records, e.Records
	w.hold(e.Held, e.Chunk.Records+e.Ahead)
	if w.Phase.HasRecords() {
		w.compute(e.Awaits)
	}
	c.measure(w, e.Computed, now)
	c.addLatency(w, e.Latency)
	c.use(e.Usage)
}

// measure sets how many records a worker's kernel has computed. Rates follow from these counts:
// events of different slots can overtake each other, so the counts of the job may fall.
func (c *Collector) measure(w *Worker, computed int64, now time.Time) {
	if w.Total = max(w.Total, computed); c.began.IsZero() {
		c.began = now
	}
	if d := c.device(w.Device); d != nil {
		d.work.add(now, c.deviceRecords(d.Device))
	}
	var all int64
	for _, w := range c.view.Workers {
		all += w.Total
	}
	c.work.add(now, all)
}

// use sets what the kernels have counted so far. Events of different slots can overtake each
// other.
func (c *Collector) use(usage map[string]int64) {
	for name, n := range usage {
		c.view.Figures[name] = max(c.view.Figures[name], float64(n))
	}
	if usage != nil {
		c.tokens.add(c.now(), usage[orchestrator.Tokens(usage)])
	}
}

func (c *Collector) chunkDone(e orchestrator.ChunkDone, now time.Time) {
	v := &c.view
	v.Done, v.Answers, v.Total, v.Estimate = e.Job, e.Answers, e.Total, e.Estimate
	w := c.slot(e.Slot)
	switch {
	case w.First != e.First || !w.Phase.HasRecords(): // it computes another one, or has exited
	case e.Held > 0: // it continues behind those
		w.First += e.Counts.Records
	default:
		w.Done, w.Again, w.Phase, w.idle = w.Records, 0, PhaseWaiting, now
	}
	w.hold(e.Held, e.Ahead)
	c.measure(w, e.Computed, now)
	w.Failed += e.Counts.Failed
	w.Batches += e.Stats.Batches
	w.Restarts += e.Stats.Restarts
	w.Retries += e.Stats.Retries
	w.Busy += e.Stats.Busy
	c.addLatency(w, e.Stats.Latency)
	v.Segments.Add(e.Stats.Busy)
	for name, n := range e.Stats.Figures {
		v.Figures[name] += n
	}
	c.use(e.Usage)
	c.tally.Add(e.Counts)
	c.strip.add(e.First-c.first, e.Counts.Records, e.Counts.Failed)
}

func (c *Collector) addLatency(w *Worker, h *orchestrator.Histogram) {
	if h == nil {
		return
	}
	c.view.Batches.Merge(*h)
	if d := c.device(w.Device); d != nil {
		d.Batches.Merge(*h)
	}
}

func (c *Collector) sample(e orchestrator.DeviceSample, now time.Time) {
	if d := c.device(e.Device); d != nil {
		d.Sampled, d.State, d.DeviceSample = now, e.State.String(), e
	}
}

func (c *Collector) finished(report orchestrator.Report) {
	v := &c.view
	v.end(&report)
	v.TokenRate = report.TokenRate
	c.use(report.Usage)
	for i := range v.Workers {
		v.Workers[i].leave(PhaseEnded)
	}
}

func (c *Collector) point(now time.Time) point {
	p := point{Time: now.UnixMilli(), Done: c.view.Reached(), Failed: c.view.Done.Failed}
	for _, d := range c.view.Devices {
		i := c.course.history.index(d.Device)
		p.Devices = append(p.Devices, make([]figures, max(0, i+1-len(p.Devices)))...)
		d.Records = c.deviceRecords(d.Device)
		p.Devices[i] = figuresOf(d)
	}
	return p
}

// compute sets the phase of a worker with a chunk.
func (w *Worker) compute(awaits orchestrator.Awaits) {
	w.Phase, w.awaits = phaseOf(awaits), awaits
}

// hold sets how many records of all its chunks are computed, if it has several.
func (w *Worker) hold(records, done int64) {
	if records > 0 {
		w.Records, w.Done = records, done
	}
}

// deviceRecords counts the records that the workers of a device have computed.
func (c *Collector) deviceRecords(device string) (n int64) {
	for _, w := range c.view.Workers {
		if w.Device == device {
			n += w.Total
		}
	}
	return n
}

// View returns the job's state.
func (c *Collector) View() View {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view
	v.Time = now
	v.Workers, v.Devices = append([]Worker{}, v.Workers...), append([]Device{}, v.Devices...)
	v.Batches, v.Segments = v.Batches.Clone(), v.Segments.Clone()
	for i := range v.Devices {
		v.Devices[i].Batches = v.Devices[i].Batches.Clone()
	}
	v.Latency = orchestrator.Summarize(v.Batches)
	v.Timeline = c.course.timeline.show()
	v.Strip = c.strip.show(v.Total, c.first, v.Workers)
	v.addFailures(orchestrator.FailureReports(c.tally.Causes), orchestrator.FailureReports(c.tally.Kinds))
	v.Finished = c.tally.Counts
	v.Figures = maps.Clone(v.Figures)
	if c.paused && v.Phase == PhaseRunning {
		v.Phase = PhasePaused
	}
	for i := range v.Workers {
		c.adjust(&v, &v.Workers[i], now)
	}
	if !v.Started.IsZero() {
		c.addRates(&v, now)
	}
	return v
}

const (
	// betweenChunks is how long a worker may be without a chunk before it is shown as waiting: a
	// shorter gap is not worth showing.
	betweenChunks = 300 * time.Millisecond
	// againShown is how long Again is shown after a worker computes again.
	againShown = 5 * time.Second
)

// adjust sets the phase of a worker, which also depends on the time, its devices and the job, and hides
// what is no longer worth showing.
func (c *Collector) adjust(v *View, w *Worker, now time.Time) {
	still := slices.ContainsFunc(v.DevicesOf(*w), func(d Device) bool { return d.Pace == 0 })
	switch {
	case still && w.Phase.HasRecords(), (still || c.paused) && w.Phase == PhaseWaiting:
		w.Phase = PhasePaused
	case w.Phase == PhaseWaiting && now.Sub(w.idle) < betweenChunks:
		w.compute(w.awaits)
	}
	w.Phase = w.Phase.starting(w.start)
	if w.Phase.HasRecords() && now.Sub(w.began) >= againShown {
		w.Again = 0
	}
}

// addRates computes what depends on the time.
func (c *Collector) addRates(v *View, now time.Time) {
	elapsed, loading := now.Sub(v.Started), c.began.Sub(v.Started)
	if v.Report != nil {
		elapsed, loading = v.Report.Elapsed, v.Report.Load
	}
	v.Elapsed = elapsed.Seconds()
	v.AverageRate = rate(v.Reached()-c.run, elapsed-loading)
	for i := range v.Devices {
		v.Devices[i].Records = c.deviceRecords(v.Devices[i].Device)
	}
	if v.Phase == PhaseEnded {
		return
	}
	v.Rate, v.TokenRate = c.work.rate(now), c.tokens.rate(now)
	for i := range v.Devices {
		v.Devices[i].Rate = v.Devices[i].work.rate(now)
	}
	size, _ := v.Size()
	if v.Rate > 0 && c.work.steady(now) && size >= 0 && v.Phase == PhaseRunning &&
		!v.AllIn(PhaseHeld) && !v.AllIn(PhasePaused) {
		v.ETA = new(float64(max(0, size-v.Reached())) / v.Rate)
	}
}

// History returns the job's course so far.
func (c *Collector) History() History {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.course.history.show()
}
