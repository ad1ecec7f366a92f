package fleet

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// ledger records what has become of the job's records: committed, finished but held back
// until the judge has ruled on the kernel, or in progress.
type ledger struct {
	source *input.Source // it knows the total, or about

	mu       sync.Mutex
	totals   Totals
	tally    chunk.Tally          // of everything that may be committed
	appended chunk.Tally          // the part of tally that was in the output after the last commit
	held     []chunk.Segment      // finished, but not to be committed yet
	live     map[int]chunk.Counts // of the chunks in progress, of each slot together
	kept     map[int]int64        // records of each slot that its loss does not cost
	reached  int64                // booked or kept at some time: logs outlive workers
	kernel   judge.Case
	computed *chunk.Chunk // starts with a record that the kernel has computed
}

// Totals are figures of all segments.
type Totals struct {
	Nulls int64 // numbers that JSON cannot represent
	// Cost is what the grouped records cost, Padded the same including padding.
	Cost, Padded int64
	Latency      histogram.Histogram
	Sick         []event.SickDevice
}

func newLedger(o Options) *ledger {
	l := &ledger{
		source: o.Source, live: make(map[int]chunk.Counts), kept: make(map[int]int64),
		tally: o.Before.Clone(), reached: o.Before.Records + o.Answers, kernel: o.Case,
	}
	l.kernel.Await(len(o.Slots))
	return l
}

// total returns the number of records, -1 while unknown.
func (l *ledger) total() int64 {
	if total, known := l.source.Total(); known {
		return total
	}
	return -1
}

// estimate returns about how many records there are while the total is unknown; 0 if
// nothing can be said.
func (l *ledger) estimate() int64 {
	if l.total() >= 0 {
		return 0
	}
	return l.source.Estimate()
}

// done counts the finished records of the whole job, including those of chunks in
// progress.
func (l *ledger) done() chunk.Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.booked()
	for _, live := range l.live {
		counts.Add(live)
	}
	return counts
}

// finished counts the records of finished chunks.
func (l *ledger) finished() chunk.Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.booked()
}

// booked is finished for a caller that holds l.mu.
func (l *ledger) booked() chunk.Counts {
	counts := l.tally.Counts
	for _, s := range l.held {
		counts.Add(s.Tally.Counts)
	}
	return counts
}

// hasResults reports whether the kernel has computed a record, in this run or before. A retry
// has the results of its job.
func (l *ledger) hasResults() bool {
	done := l.done()
	return l.kernel.Exempt || done.Succeeded+done.Dropped > 0
}

// answered counts the records that are not done but have an answer. Those that an earlier run
// or a lost worker has logged count at once, although workers import them one by one.
func (l *ledger) answered() int64 {
	done := l.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.booked().Records
	for _, kept := range l.kept {
		n += kept
	}
	l.reached = max(l.reached, n)
	return max(0, l.reached-done.Records)
}

// progress records how far a slot's chunks have come.
func (l *ledger) progress(slot int, counts chunk.Counts, kept int64, latency *histogram.Histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[slot], l.kept[slot] = counts, kept
	l.totals.addLatency(latency)
}

// withdraw forgets the progress of a slot whose worker has exited: what was not finished
// is computed again.
func (l *ledger) withdraw(slot int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, slot)
	delete(l.kept, slot)
}

// finish takes the result of a slot's task. Its segment is held until release. live are the
// counts of the slot's other chunks, and kept what its loss does not cost of those.
func (l *ledger) finish(slot int, t task, done wire.Done, live chunk.Counts, kept int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[slot], l.kept[slot] = live, kept
	l.add(t, done)
}

// book takes the result of a task whose slot has gone on.
func (l *ledger) book(t task, done wire.Done) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(t, done)
}

// add is book for a caller that holds l.mu.
func (l *ledger) add(t task, done wire.Done) {
	l.totals.Nulls += done.Stats.Nulls
	l.totals.Cost += done.Stats.Cost
	l.totals.Padded += done.Stats.Padded
	l.totals.addLatency(done.Stats.Latency)
	counts := done.Segment.Tally.Counts
	if l.computed == nil && counts.Failed == 0 && counts.Records > 0 && l.source.Stays(t.chunk) {
		l.computed = &t.chunk
	}
	if counts.Records > 0 {
		l.held = append(l.held, done.Segment)
	}
}

// noteSick records a device that was retired.
func (l *ledger) noteSick(d event.SickDevice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.totals.Sick = append(l.totals.Sick, d)
}

// hold takes a segment without a worker: a chunk that was given up.
func (l *ledger) hold(s chunk.Segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, s)
}

// release returns the held segments to be committed, unless it is still unknown whether
// the kernel fails on everything. If it does, release returns why the job must stop. At
// the end of the job the evidence is complete.
func (l *ledger) release(end, stopping bool) (segments []chunk.Segment, why *fault.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all chunk.Tally
	computed, total := false, l.total()
	all.Add(l.tally)
	for _, s := range l.held {
		all.Add(s.Tally)
		computed = computed || s.Tally.Succeeded+s.Tally.Dropped > 0
	}
	why, open := l.kernel.Verdict(computed, total)
	if why == nil && end && !stopping {
		why = l.kernel.Final(all, total)
	}
	if why != nil || open && !end {
		return nil, why
	}
	segments, l.held = l.held, nil
	l.tally = all
	return segments, nil
}

// commit counts a segment that is committed without being held.
func (l *ledger) commit(tally chunk.Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Add(tally)
}

// setAppended records what the output contains.
func (l *ledger) setAppended(tally chunk.Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appended = tally
}

// hear passes what a worker reports about its first records to the judge.
func (l *ledger) hear(slot int, first *judge.First) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kernel.Hear(slot, first)
}

// excuse makes the judge stop waiting for a retired slot, or wait for it again.
func (l *ledger) excuse(slot int, retired bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kernel.Excuse(slot, retired)
}

// proof returns a chunk whose first record the kernel has computed in this run, or nil.
func (l *ledger) proof() *chunk.Chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.computed
}

// Total returns the number of records, -1 while unknown.
func (f *Fleet) Total() int64 { return f.ledger.total() }

// SetAppended records what the output contains.
func (f *Fleet) SetAppended(tally chunk.Tally) { f.ledger.setAppended(tally) }

// Report is what a fleet has done.
type Report struct {
	Totals
	Tally    chunk.Tally // what was delivered, including earlier runs
	Appended chunk.Tally // the part of it that was in the output after the last commit
	Workers  []event.WorkerReport
	Scaling  []event.ScalingReport
	Health   []gpu.Health // of the GPUs that were monitored
	Opened   time.Time    // when the first kernel was open; zero if none was
}

// Close returns the report of an ended job, which leaves answers in its logs.
func (f *Fleet) Close(answers int64) Report {
	l := f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.live)
	clear(l.kept)
	l.held, l.reached = nil, l.tally.Records+answers
	r := Report{Totals: l.totals, Tally: l.tally, Appended: l.appended, Workers: f.roster.reports(), Scaling: f.scaler.Report(), Opened: f.roster.openedAt}
	if f.monitor.monitor != nil {
		r.Health = f.monitor.monitor.Status()
	}
	return r
}

func (t *Totals) addLatency(h *histogram.Histogram) {
	if h != nil {
		t.Latency.Merge(*h)
	}
}
