package fleet

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// ledger records what has become of the job's records: committed, or finished but held back
// until the judge has ruled on the kernel. Those in progress are what the slots' workers have.
type ledger struct {
	source *input.Source // it knows the total, or about
	roster *roster
	mu     *sync.Mutex // the roster's

	totals   Totals
	tally    chunk.Tally     // of everything that may be committed
	held     []chunk.Segment // finished, but not to be committed yet
	reached  int64           // booked or kept at some time: logs outlive workers
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

func newLedger(o Options, r *roster) *ledger {
	l := &ledger{source: o.Source, roster: r, mu: &r.mu, tally: o.Before.Clone(), reached: o.Before.Records + o.Answers, kernel: o.Case}
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

// counts counts the finished records of the whole job, including records of chunks in progress,
// and those that are not done but have an answer. Answers that an earlier run or a lost worker
// has logged count at once, although workers import them one by one.
func (l *ledger) counts() (done chunk.Counts, answers int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done = l.booked()
	kept := done.Records
	for _, m := range l.roster.members {
		done.Add(m.load.counts)
		kept += m.load.kept
	}
	l.reached = max(l.reached, kept)
	return done, max(0, l.reached-done.Records)
}

// done is counts without the answers.
func (l *ledger) done() chunk.Counts {
	done, _ := l.counts()
	return done
}

// finished counts the records of finished chunks.
func (l *ledger) finished() chunk.Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.booked()
}

// booked is finished for a caller that holds the lock.
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

// progress records how far a slot's chunks have come.
func (l *ledger) progress(m *member, has load, p wire.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.load = has
	m.account.progress(p)
	l.totals.addLatency(p.Latency)
}

// finish books the result of a slot's task, unless it is suspended. Its segment is held until
// release. has is what the slot's worker has besides. tuned: it does not search for its batch
// size.
func (l *ledger) finish(m *member, has load, done result, suspended bool) (tuned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	has.size, has.done = 0, 0 // until its next task begins
	m.load = has
	m.account.finish(done.done)
	if !suspended {
		l.add(done)
	}
	return !m.account.tuning
}

// book books the result of a task that was suspended.
func (l *ledger) book(done result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(done)
}

// add is book for a caller that holds the lock.
func (l *ledger) add(r result) {
	stats, counts := r.done.Stats, r.done.Segment.Tally.Counts
	l.totals.Nulls += stats.Nulls
	l.totals.Cost += stats.Cost
	l.totals.Padded += stats.Padded
	l.totals.addLatency(stats.Latency)
	if l.computed == nil && counts.Failed == 0 && counts.Records > 0 && l.source.Stays(r.task.Chunk) {
		l.computed = &r.task.Chunk
	}
	if counts.Records > 0 {
		l.held = append(l.held, r.done.Segment)
	}
}

// addSick records a device that was retired.
func (l *ledger) addSick(d event.SickDevice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.totals.Sick = append(l.totals.Sick, d)
}

// hold books a segment without a worker: a chunk that was given up.
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

// close ends the ledger of a job, which leaves answers in its logs.
func (l *ledger) close(answers int64) (r Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.reached = nil, l.tally.Records+answers
	r = Report{Totals: l.totals, Tally: l.tally, Opened: l.roster.opened}
	for _, m := range l.roster.members {
		m.load = load{}
		m.account.report.Close(time.Now())
		r.Workers = append(r.Workers, m.account.report)
	}
	return r
}

func (t *Totals) addLatency(h *histogram.Histogram) {
	if h != nil {
		t.Latency.Merge(*h)
	}
}
