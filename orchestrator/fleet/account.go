package fleet

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// account is what the workers of a slot have done. Its methods take what the current worker has
// computed of unfinished tasks, where that counts, too.
type account struct {
	report        event.WorkerReport
	oneByOne      bool          // the kernel is concurrent: workers count the records that it computes
	bytes         int64         // of the input of finished segments
	recordBytes   float64       // of the current chunk
	batches       int64         // that the worker has finished
	batchesBefore int64         // the same for earlier workers
	computed      int64         // records that earlier workers of a concurrent kernel have computed
	repeated      int64         // records of unfinished chunks that were lost with earlier workers
	busy          time.Duration // in which the worker's kernel had work
	busyBefore    time.Duration // the same for earlier workers
	opening       time.Duration // how long another kernel like this one would take to open
	first         time.Duration // how long the first batch took; 0 before its end
	shared        time.Duration // of the start, what another kernel would not repeat
	before        int64         // records that were done when it was open
	tuning        bool          // the worker is searching for its batch size
	awaits        wire.Awaits   // what the kernel waits for
}

// starts records how far the start of a kernel is. The report has the first complete one.
func (a *account) starts(s wire.Start) {
	a.shared, a.first = s.Imports.Shared, s.FirstBatch
	if a.report.Start.Phase != wire.StartDone {
		a.report.Start = s
	}
}

// ready records that a kernel is open, which took some time.
func (a *account) ready(now time.Time, took time.Duration) {
	a.report.Retired, a.report.Ready = false, now
	if a.report.Opened.IsZero() {
		a.report.Opened = now
	}
	a.opening, a.before = max(0, took-a.shared), a.report.Records
	a.report.Load += took
}

// cold returns for how long the kernel has been open without having computed anything.
func (a *account) cold(now time.Time) time.Duration {
	if a.report.Ready.IsZero() {
		return 0
	}
	return now.Sub(a.report.Ready)
}

// oneMore returns how long another kernel like this one would take until it computes at full speed:
// frameworks compile, and load parts of themselves, in the first batch.
func (a *account) oneMore() time.Duration {
	if a.first == 0 || a.batches < 2 {
		return a.opening
	}
	usual := (a.busy - a.first) / time.Duration(a.batches-1)
	return a.opening + max(0, a.first-usual)
}

// exited records the end of a worker.
func (a *account) exited(unfinished int64, cpu time.Duration) {
	a.repeated += unfinished
	a.computed = a.report.Records
	a.busyBefore, a.busy, a.tuning, a.awaits = a.busyBefore+a.busy, 0, false, ""
	a.batchesBefore, a.batches = a.batchesBefore+a.batches, 0
	a.report.CPU += cpu
	a.report.Rest(time.Now())
}

// begin records that the worker computes a task.
func (a *account) begin(t queue.Task) {
	a.recordBytes = float64(t.Chunk.Length) / float64(max(1, t.Chunk.Records))
}

// progress records what the worker reports about its speed.
func (a *account) progress(p wire.Progress) {
	a.busy, a.batches, a.tuning, a.awaits = p.Busy, p.Batches, p.Tuning, p.Awaits
	if a.oneByOne {
		a.report.Records = a.computed + p.Computed
	}
}

// finish records the end of a part and what it cost.
func (a *account) finish(done wire.Done) {
	counts, stats := done.Segment.Tally.Counts, done.Stats
	a.bytes += int64(float64(counts.Records) * a.recordBytes)
	a.batches = done.Batches
	w := &a.report
	w.Chunks++
	w.Batches += stats.Batches
	w.Busy += stats.Busy
	w.Restarts += stats.Restarts
	w.Retries += stats.Retries
	w.WaitedInput += stats.Input
	w.WaitedOutput += stats.Output
	w.BatchSize = max(w.BatchSize, stats.BatchSize)
	if a.oneByOne { // answers may be imported from the log, and others wait for a commit
		w.Records = a.computed + done.Computed
	} else {
		w.Records += counts.Records
	}
}

// records returns how many records were computed in this run, also those that were lost with a
// worker.
func (a *account) records(unfinished int64) int64 {
	if a.oneByOne { // answers are logged: none is lost
		return a.report.Records
	}
	return a.report.Records + unfinished + a.repeated
}

// speed returns the records per second of the kernels' busy time, 0 if unknown. more records took
// some time, but are not counted yet.
func (a *account) speed(more int64, took time.Duration) float64 {
	if a.oneByOne { // records count at once, the report's time with the chunk's end
		return event.Rate(a.report.Records, a.busyBefore+a.busy)
	}
	return event.Rate(a.report.Records+more, a.report.Busy+took)
}

// computes reports whether the current worker has computed something.
func (a *account) computes(unfinished int64) bool {
	return !a.report.Ready.IsZero() && a.report.Records+unfinished > a.before
}

// addTo adds the account to what several slots have done.
func (a *account) addTo(w *scaler.Work, unfinished int64) {
	w.Records += a.report.Records + unfinished
	w.Bytes += a.bytes + int64(float64(unfinished)*a.recordBytes)
	w.Batches += a.batchesBefore + a.batches
	w.Busy += a.busyBefore + a.busy
	w.BatchSize = max(w.BatchSize, a.report.BatchSize)
}
