package worker

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// ahead is how many batches wait ready for the kernel, and how many for the
// writer: enough that neither the device nor the disk waits for the other.
const ahead = 2

// compute works through a chunk and returns what came of it. Bad records are
// part of that; an error means that this worker cannot finish the chunk.
func (w *Worker) compute(ctx context.Context, assign wire.Assign) (wire.Done, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, err := w.startReading(ctx, assign.Chunk)
	if err != nil {
		return wire.Done{}, err
	}
	defer reader.stop()
	out := w.startWriting(assign, reader.give)

	r := &chunkRun{worker: w, ctx: ctx, reader: reader, out: out, rest: assign.Chunk, final: assign.Final}
	err = r.loop()
	var elsewhere *elsewhereError
	if errors.As(err, &elsewhere) {
		err = nil
	}
	end := r.rest
	if r.elsewhere != nil {
		end = *r.elsewhere
	}
	if r.left != nil {
		r.rest = r.rest.Before(*r.left)
	}
	segment, writeErr := out.finish(end, err != nil || ctx.Err() != nil)
	if err == nil {
		err = writeErr
	}
	if err != nil {
		return wire.Done{}, err
	}
	r.stats.Nulls, r.stats.BatchSize = out.nulls(), w.sizes.found()
	done := wire.Done{Segment: segment, Stats: r.stats, First: out.takeFirst(), Elsewhere: r.elsewhere}
	if r.rest.Records > 0 {
		done.Rest = &r.rest
	}
	return done, nil
}

// work is one batch on its way from the reader through the kernel to the writer.
type work struct {
	batch *chunk.Batch
	// refused holds, for each record, why the kernel never sees it; nil entries
	// are sent, and all are where it is nil itself. upstream records are refused
	// with kind Upstream.
	refused []*fault.Error
	// sent are the positions in batch of what the kernel sees.
	sent []int
	// ready is how many of batch are for the writer; the rest is not computed.
	ready   int
	records [][]byte
	// spans tells where the inputs stand in each of records.
	inputs  []string
	spans   []uint32
	places  places
	load    load             // of records
	results *plugins.Results // of the batch as a whole
	// verdicts are those of sent where the batch was isolated; nil: results has them.
	verdicts []verdict
}

// verdict is where a record's result stands, or why it failed.
type verdict struct {
	results *plugins.Results
	index   int
	fault   *fault.Error
}

// toCompute is the records from lo to hi, of those sent, as a batch.
func (j *work) toCompute(lo, hi int) plugins.Batch {
	each := 2 * len(j.inputs)
	return plugins.NewBatch(j.records[lo:hi]).WithInputs(j.inputs, j.spans[lo*each:hi*each])
}

// verdict is that of record i of those sent, once it is known.
func (j *work) verdict(i int) verdict {
	if j.verdicts != nil {
		return j.verdicts[i]
	}
	return verdict{results: j.results, index: i}
}

// refusal is why the kernel never saw record i of the batch; nil if it did.
func (j *work) refusal(i int) *fault.Error {
	if j.refused == nil {
		return nil
	}
	return j.refused[i]
}

// chunkRun is one chunk going through the kernel.
type chunkRun struct {
	worker *Worker
	ctx    context.Context
	reader *batchReader
	out    *partWriter
	rest   chunk.Chunk // behind the last batch that is finished
	// elsewhere is the record before rest, if that is for another device.
	elsewhere *chunk.Chunk
	// left is what was handed back while batches were in flight.
	left  *chunk.Chunk
	final bool // no other device is left for what does not fit this one
	stats wire.Stats

	flight    []*work // submitted, oldest first
	headSince time.Time
	watcher   *time.Timer
	restUntil time.Time // the device rests
	ended     bool      // the reader has no more
	quick     bool      // the last batch took no time
}

// quickBatch is below which a batch is over before the next message has come.
const quickBatch = 5 * time.Millisecond

// window is how many batches are with the kernel process at a time: one more
// than it computes, so that it never waits for the next, unless it should; more
// where they are so quick that messages take longer than they. At the end of the job
// what waits is better with somebody who has nothing to do.
func (r *chunkRun) window() int {
	window := max(1, r.worker.host.info.InFlight)
	switch {
	case r.worker.pace.slowed():
		return 1
	case r.quick:
		window += 3
	case !r.worker.scarce.Load():
		window++
	}
	return window
}

func (r *chunkRun) loop() error {
	for {
		if r.worker.pace.mustGive() {
			r.worker.stop.Store(true)
		}
		stopping := r.worker.stop.Load()
		if len(r.flight) == 0 && (r.ended || stopping) {
			return nil
		}
		trimming := len(r.worker.trims) > 0
		if trimming && len(r.flight) == 0 {
			<-r.worker.trims
			r.worker.trim(r.ctx)
			continue
		}
		if stopping {
			r.handBack()
		}
		if err := r.step(stopping || trimming); err != nil {
			return err
		}
	}
}

// handBack tells, once, what of the chunk is left for others, before the batches in
// flight are waited for.
func (r *chunkRun) handBack() {
	rest := r.flight[len(r.flight)-1].batch.Rest()
	if r.left != nil || rest.Records == 0 {
		return
	}
	r.left = &rest
	r.worker.send(wire.Message{Left: &wire.Left{Rest: rest, InFlight: rest.First - r.rest.First}})
	crash.Point("worker-handed-back")
}

// step submits the next batch or finishes the oldest, whichever is possible
// first.
func (r *chunkRun) step(stopping bool) error {
	var next <-chan readBatch
	var rested <-chan time.Time
	if !r.ended && !stopping && len(r.flight) < r.window() {
		next = r.reader.batches
		if wait := r.breather(); wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			next, rested = nil, timer.C
		}
	}
	var head <-chan struct{}
	var expired <-chan time.Time
	if len(r.flight) > 0 {
		head = r.flight[0].results.Done()
		limit := r.worker.host.limit(r.flight[0].load)
		expired = r.watch(time.Until(r.headSince.Add(limit)))
	}
	select {
	case batch, ok := <-next:
		return r.submit(batch, ok)
	case <-head:
		return r.finishHead(r.flight[0].results.Wait(r.ctx))
	case <-expired:
		return r.finishHead(r.worker.host.tooLong(r.worker.host.limit(r.flight[0].load)))
	case <-rested:
		return nil
	case <-r.worker.pace.wake: // to stop, or another pace
		return nil
	case <-r.out.broken:
		return r.out.err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// watch tells when the oldest batch has had its time. One timer does for all.
func (r *chunkRun) watch(left time.Duration) <-chan time.Time {
	if r.watcher == nil {
		r.watcher = time.NewTimer(left)
	} else {
		r.watcher.Reset(left)
	}
	return r.watcher.C
}

func (r *chunkRun) submit(batch readBatch, ok bool) error {
	if !ok {
		r.ended = true
		return nil
	}
	if batch.err != nil {
		return batch.err
	}
	job := batch.work
	job.results, job.load = plugins.NewResults(len(job.records)), loadOf(job.records)
	if len(job.records) == 0 { // nothing for the kernel in it
		if len(r.flight) > 0 {
			if err := r.drain(); err != nil {
				return err
			}
		}
		return r.pass(job)
	}
	if restarted, err := r.worker.host.alive(r.ctx); err != nil {
		return err
	} else if restarted {
		r.stats.Restarts++
	}
	if len(r.flight) == 0 {
		r.headSince = time.Now()
	}
	r.flight = append(r.flight, job)
	err := r.worker.host.process.Process(r.ctx, job.toCompute(0, len(job.sent)), job.results)
	crash.Point("worker-mid-batch")
	return err
}

// drain finishes everything in flight.
func (r *chunkRun) drain() error {
	for len(r.flight) > 0 {
		if err := r.step(true); err != nil {
			return err
		}
	}
	return nil
}

// finishHead takes the oldest batch's outcome.
func (r *chunkRun) finishHead(err error) error {
	job := r.flight[0]
	r.flight = r.flight[1:]
	r.stats.Batches++
	took := time.Since(r.headSince)
	r.stats.Busy += took
	r.quick = took < quickBatch
	if err == nil {
		r.worker.host.good(took, job.load)
		r.worker.sizes.good(len(job.batch.Records), took)
		r.headSince = time.Now()
		r.restUntil = r.headSince.Add(r.worker.pace.rest(took))
		return r.pass(job)
	}
	return r.recover(job, err)
}

// recover handles a failed batch. Whatever was in flight behind it is waited
// for first: results that came are good, and what a dead kernel took with it is
// run again, one batch at a time, so that blame is certain.
func (r *chunkRun) recover(job *work, err error) error {
	behind := r.flight
	r.flight = nil
	outcomes := make([]error, len(behind))
	for i, other := range behind {
		outcomes[i] = r.await(other)
	}
	if err := r.isolate(job, err); err != nil {
		return err
	}
	for i, other := range behind {
		if outcomes[i] == nil {
			if err := r.pass(other); err != nil {
				return err
			}
			continue
		}
		failure := fault.As(outcomes[i])
		if failure == nil || failure.Kind == fault.Crash {
			failure = nil // collateral: it has not been tried by itself
		}
		if err := r.rerun(other, failure); err != nil {
			return err
		}
	}
	r.headSince = time.Now()
	return nil
}

// await waits for a batch behind a failed one, killing a kernel that hangs.
func (r *chunkRun) await(job *work) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.worker.host.limit(job.load))
	defer cancel()
	err := job.results.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		r.worker.host.kill()
		return fault.New(fault.Crash, "kernel did not answer")
	}
	return err
}

// pass gives a finished batch to the writer.
func (r *chunkRun) pass(job *work) error {
	r.rest = job.batch.Rest()
	select {
	case r.out.jobs <- job:
		return nil
	case <-r.out.broken:
		return r.out.err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}
