package orchestrator

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// ledger records what has become of the job's records: committed, finished but held back
// until the judge has ruled on the kernel, or in progress.
type ledger struct {
	source    input.Source    // it knows the total
	estimated input.Estimated // or about; nil if it does not
	before    chunk.Counts    // done by earlier runs

	mu       sync.Mutex
	report   Report               // its figures, but for the workers'
	tally    chunk.Tally          // of everything that may be committed
	appended chunk.Tally          // the part of tally that was in the output after the last commit
	held     []chunk.Segment      // finished, but not to be committed yet
	live     map[int]chunk.Counts // of the chunks in progress, of each slot together
	ahead    map[int]int64        // answers behind a record without one, of each slot
	reached  int64                // done or answered at some time, with a concurrent kernel: logs outlive workers
	kernel   judge.Case
	computed *chunk.Chunk // starts with a record that the kernel has computed
}

func newLedger(p *prepared, folder string, started time.Time) *ledger {
	c := p.config
	l := &ledger{
		source: p.source, estimated: p.estimated, live: make(map[int]chunk.Counts), ahead: make(map[int]int64),
		report: Report{
			Input: c.Input.Path, Output: c.Output.Path, Errors: c.Output.Errors, Streamed: isStream(c.Output.Path), Format: c.Format,
			Kernel: c.Kernel.Name, Started: started, Folder: folder, BatchSize: p.plan.BatchSize,
			GroupBy: p.plan.GroupBy, Concurrency: p.plan.Info.Concurrency,
		},
	}
	if p.earlier != nil {
		state := p.earlier.state
		l.tally.Add(state.Durable.Tally)
		for _, segment := range state.Segments {
			l.tally.Add(segment.Tally)
		}
		l.before, l.report.Resumed, l.report.ResumedAnswers = l.tally.Counts, l.tally.Records, p.earlier.answers
		l.reached = l.report.Resumed + l.report.ResumedAnswers
	}
	l.kernel = judge.Case{Exempt: c.framed, Before: l.before, BatchSize: p.plan.BatchSize, Lacks: p.lacks, Streamed: isStream(c.Output.Path)}
	l.kernel.Await(len(p.plan.Slots))
	return l
}

// resuming describes the results of earlier runs, before this run adds to them.
func (l *ledger) resuming(ranges []Range) Resuming {
	l.mu.Lock()
	job := l.tally.Clone()
	l.mu.Unlock()
	return Resuming{Done: job.Records, Answers: l.report.ResumedAnswers, Job: job, Ranges: ranges, Total: l.total()}
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
	if l.estimated == nil || l.total() >= 0 {
		return 0
	}
	return l.estimated.Estimate()
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
func (l *ledger) answered() (n int64) {
	if l.report.Concurrency == 0 {
		return 0
	}
	done := l.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ahead := range l.ahead {
		n += ahead
	}
	l.reached = max(l.reached, done.Records+n)
	return l.reached - done.Records
}

// progress records how far a slot's chunks have come.
func (l *ledger) progress(slot int, counts chunk.Counts, ahead int64, latency *Histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[slot], l.ahead[slot] = counts, ahead
	l.report.addLatency(latency)
}

// withdraw forgets the progress of a slot whose worker has exited: what was not finished
// is computed again.
func (l *ledger) withdraw(slot int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, slot)
	delete(l.ahead, slot)
}

// finish takes the result of a slot's task. Its segment is held until release. live are the
// counts of the slot's other chunks, and ahead their answers that are not among those.
func (l *ledger) finish(slot int, t task, done wire.Done, live chunk.Counts, ahead int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[slot], l.ahead[slot] = live, ahead
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
	l.report.Nulls += done.Stats.Nulls
	l.report.cost += done.Stats.Cost
	l.report.padded += done.Stats.Padded
	l.report.addLatency(done.Stats.Latency)
	counts := done.Segment.Tally.Counts
	if _, streamed := l.source.(input.Streamed); l.computed == nil && !streamed && counts.Failed == 0 && counts.Records > 0 {
		l.computed = &t.chunk // its file stays
	}
	if counts.Records > 0 {
		l.held = append(l.held, done.Segment)
	}
}

// noteSick records a device that was retired.
func (l *ledger) noteSick(d SickDevice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Sick = append(l.report.Sick, d)
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

// snapshot returns a running job's figures, without its workers.
func (l *ledger) snapshot() Snapshot {
	r, done, answers := &l.report, l.done(), l.answered()
	return Snapshot{
		Phase: PhaseRunning, Input: r.Input, Output: r.Output, Kernel: r.Kernel, Folder: r.Folder, Started: r.Started,
		Done: done, Total: l.total(), Answers: answers, Estimate: l.estimate(), Resumed: r.Resumed, ResumedAnswers: r.ResumedAnswers, BatchSize: r.BatchSize,
		Rate: rate(done.Records+answers-r.Resumed-r.ResumedAnswers, time.Since(r.Started)),
	}
}

// close returns the report of the ended job. unread: the reader of the output has
// stopped reading, and only what was appended counts.
// answers are logged for the next run.
func (l *ledger) close(workers []WorkerReport, load time.Duration, unread bool, answers int64) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.report
	r.Load, r.Answers = load, answers
	total, known := l.source.Total()
	r.In, r.Blank, r.Uncounted, r.Workers = max(total, l.tally.Records), l.source.Blank(), !known, workers
	tally := l.tally
	if unread {
		tally = l.appended
	}
	r.close(time.Now(), tally)
	clear(l.live)
	clear(l.ahead)
	l.held, l.reached = nil, l.tally.Records+answers
	return r
}
