// Package judge decides whether a kernel fails on everything, or no file of a job can be
// fetched: gpurun then stops instead of marking a million records. It also decides whether a
// device, and not the records, may be to blame for failures (Outcomes). Its types are values:
// they start nothing and wait for nothing.
package judge

import (
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Case is the evidence about a kernel from all workers of a job.
type Case struct {
	// Exempt: the records are known to fail; that they fail again is no surprise.
	Exempt bool
	// Before counts the records of earlier runs: a success proves that the kernel worked.
	Before chunk.Counts
	// BatchSize is the number of records in a batch.
	BatchSize int
	// Lacks describes members that the kernel reads and no record has, if there are any: an
	// addition to the message. It may be nil.
	Lacks func() string
	// Streamed: results go to a stream. A program that writes to one stream and reads the
	// other may wait for a record's result.
	Streamed bool

	workers []witness // by slot
}

// witness is a worker whose first records are evidence.
type witness struct {
	first   *First // nil: it has not reported
	excused bool   // it was lost
}

// fetched reports whether the worker's kernel got a record.
func (w witness) fetched() bool {
	return !w.excused && w.first != nil && w.first.Failed != nil && !isFetch(w.first.Failed)
}

// Await makes the case wait for the first records of the workers of the slots below n. Those
// of other slots are no evidence.
func (c *Case) Await(n int) { c.workers = make([]witness, n) }

// Excuse stops waiting for a slot's worker, because it was lost, or waits for it again.
func (c *Case) Excuse(slot int, excused bool) {
	if slot < len(c.workers) {
		c.workers[slot].excused = excused
	}
}

// Hear adds what a slot's worker reports. One success is enough for good.
func (c *Case) Hear(slot int, first *First) {
	if slot < len(c.workers) && (c.workers[slot].first == nil || c.workers[slot].first.Failed != nil) {
		c.workers[slot].first = first
	}
}

// evidence is what the workers say together.
type evidence struct {
	same    *fault.Error // the failure of all records
	workers int
	records int
	varied  bool   // the messages differ
	sampled bool   // some tried only a sample
	proven  string // for the message, if a record failed that succeeded in an earlier run
}

// Verdict returns why the job must stop, or nil. open: the kernel has failed on everything
// so far, and the evidence is not complete. computed: a record of this run has succeeded,
// which is enough even while other workers are still loading a model. total is the number
// of records of the job, -1 while unknown.
func (c *Case) Verdict(computed bool, total int64) (why *fault.Error, open bool) {
	if c.Exempt || computed {
		return nil, false
	}
	e, open := c.hear()
	if e.same == nil || open {
		return nil, e.same != nil && !(c.Streamed && total < 0) // a worker may never get a record to report on
	}
	small := total >= 0 && total-c.Before.Records <= int64(e.workers*c.BatchSize)
	if small && !isFetch(e.same) && !(e.sampled && dies(e.same)) { // trying each would take as many restarts as there are records
		return nil, e.same.OfKernel() // the remaining records are judged at the end
	}
	if e.sampled && !e.varied {
		return c.guilty(e.same, "each record of the first batches that was tried alone%s failed with: %s", e.proven, e.same.Message), false
	}
	switch {
	case e.records < e.needed(): // a single failing record proves nothing
		return nil, total >= 0 || !c.Streamed
	case e.varied || e.needed() == variedRecords:
		return c.guilty(e.cause(), "each of the first %d records failed, one of them with: %s", e.records, e.same.Message), false
	}
	return c.guilty(e.same, "every record of the first batches failed with: %s", e.same.Message), false
}

// needed is how many records must have failed.
func (e evidence) needed() int {
	if e.varied || isFetch(e.same) && !e.same.OfSettings() {
		return variedRecords
	}
	return judgedRecords
}

// cause returns the failure without the setting to change, unless that caused all of them.
func (e evidence) cause() *fault.Error {
	if e.varied {
		return e.same.Set("")
	}
	return e.same
}

// hear sums up what the workers say. It returns no failure if the kernel works or the
// failures differ in a way that speaks for bad records. open: a worker has not reported.
func (c *Case) hear() (e evidence, open bool) {
	works := c.Before.Succeeded+c.Before.Dropped > 0
	fetched := slices.ContainsFunc(c.workers, witness.fetched)
	for _, w := range c.workers {
		switch {
		case w.excused:
			continue
		case w.first == nil:
			open = true
			continue
		}
		failed := w.first.Failed
		if failed == nil {
			return evidence{}, false
		}
		if isFetch(failed) && fetched {
			continue // it says nothing about the kernel
		}
		if e.same != nil && !e.same.Alike(failed) {
			if !(e.same.OfKernel() && failed.OfKernel()) && !isFetch(failed) {
				return evidence{}, false
			}
			e.varied = true
		}
		if works && (w.first.Sampled || dies(failed)) && !w.first.Proven {
			return evidence{}, false // it may have been stopped while bisecting exactly these records
		}
		if works && isFetch(failed) && failed.Sign != fault.Outage {
			return evidence{}, false // the job may have been stopped where files are missing
		}
		e.same = failed
		e.varied = e.varied || w.first.Varied
		e.sampled = e.sampled || w.first.Sampled
		if w.first.Proven {
			e.proven = ", and one that succeeded in an earlier run,"
		}
		e.workers++
		e.records += w.first.Records
	}
	return e, open
}

// Final returns why a job that has processed all its records, two or more, fails: every
// record failed with the same message, or no file could be fetched. Otherwise it returns
// nil.
func (c *Case) Final(all chunk.Tally, total int64) *fault.Error {
	if c.Exempt || c.worked() || c.Before.Records > 0 || total < 2 || all.Records != total || all.Failed != total || len(all.Kinds) != 1 {
		return nil
	}
	if stats, ok := all.Kinds[fault.Fetch.String()]; ok {
		return c.finalFetch(stats, total)
	}
	if len(all.Causes) != 1 {
		return c.finalMost(all, total)
	}
	for _, kind := range []fault.Kind{fault.Batch, fault.Crash, fault.Timeout, fault.Record} {
		if stats, ok := all.Kinds[kind.String()]; ok && (kind != fault.Record || c.rejectsAll(total)) {
			return c.guilty(fault.FetchFailed.Of(kind, "").WithDetail(stats.Detail), "all %d records failed with: %s", all.Records, stats.Example)
		}
	}
	return nil
}

// worked reports whether the kernel of a worker has succeeded, in this job or in the one that
// it was kept from.
func (c *Case) worked() bool {
	return slices.ContainsFunc(c.workers, func(w witness) bool { return w.first != nil && w.first.Failed == nil })
}

// finalMost is Final for a job with more than one cause: the kernel rejected every record
// that it got with one message, and few others were refused before it got them.
func (c *Case) finalMost(all chunk.Tally, total int64) *fault.Error {
	e, _ := c.hear()
	if e.same == nil {
		return nil
	}
	most := all.Causes[e.same.Kind.String()+": "+fault.Shape(e.same.Message)]
	if most.Count < total-total/10 || e.same.Kind != fault.Record || !c.rejectsAll(most.Count) {
		return nil
	}
	return c.guilty(e.same, "all %d records failed, %d of them with: %s", total, most.Count, e.same.Message)
}

// rejectsAll reports whether the kernel rejected all records of a job for one reason that is
// not in the records: the messages are equal, and there are many, or a member is missing.
// A few records may well be bad.
func (c *Case) rejectsAll(total int64) bool {
	e, _ := c.hear()
	return e.same != nil && e.same.Kind == fault.Record && !e.varied && (total >= judgedRecords || c.lacks() != "")
}

func (c *Case) lacks() string {
	if c.Lacks == nil {
		return ""
	}
	return c.Lacks()
}

// finalFetch is Final for a job none of whose files could be fetched. A few files may be
// gone, unless a setting explains it.
func (c *Case) finalFetch(stats chunk.KindStats, total int64) *fault.Error {
	e, _ := c.hear()
	if e.same == nil {
		e.same = fault.FetchFailed.New("%s", stats.Example)
	}
	cause := e.cause()
	if total < judgedRecords && !cause.OfSettings() {
		return nil
	}
	return c.guilty(cause.WithDetail(stats.Detail), "all %d records failed, the first of them with: %s", total, stats.Example)
}

// guilty is the fault that stops the job because of a failure of all records.
func (c *Case) guilty(failed *fault.Error, format string, values ...any) *fault.Error {
	if isFetch(failed) {
		return fault.NothingFetched.New("no file can be fetched: "+format, values...).WithDetail(failed.Detail).Set(failed.Value)
	}
	why := fault.KernelFails.New("the kernel fails on everything: "+format, values...).WithDetail(failed.Detail)
	why.Message += c.lacks()
	return why
}

// dies reports whether the failure ended the kernel's process.
func dies(failed *fault.Error) bool {
	return failed.Kind == fault.Crash || failed.Kind == fault.Timeout
}
