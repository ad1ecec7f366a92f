package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
)

// chunkRun is one chunk on its way through the kernel.
type chunkRun struct {
	worker      *Worker
	ctx         context.Context
	cancel      context.CancelFunc
	reader      *batchReader
	out         *partWriter
	windows     []*window   // that are not complete, in order
	id          int64       // of the assignment
	first       int64       // the first record of the chunk, or of what remained at the last cut
	number      int64       // counts the worker's chunks, from 1
	ended       bool        // no further batch is submitted
	unsubmitted chunk.Chunk // what follows the last submitted batch
	rest        chunk.Chunk // what follows the last finished batch
	// elsewhere is the record just before rest, if another device must compute it.
	elsewhere *chunk.Chunk
	// interrupted is set when the job stops during a search. The chunk then ends before the
	// batch that was being searched, or in the middle of its window.
	interrupted bool
	// handedBack is the remainder that was handed back while batches were in flight.
	handedBack *chunk.Chunk
	// crowded is set when a batch does not fit in the memory that other workers share. The
	// chunk then ends before that batch.
	crowded bool
	blame   bool // blame the record for a failure that reads like a lost device, unless there is proof
	final   bool // no other device remains for records that do not fit on this one
	stats   wire.Stats
	late    histogram.Histogram // latency that the writer does not know
}

// begin starts reading a chunk.
func (w *Worker) begin(ctx context.Context, assign wire.Assign) (*chunkRun, error) {
	w.begun++
	r := &chunkRun{worker: w, id: assign.ID, number: w.begun, first: assign.Chunk.First, unsubmitted: assign.Chunk, rest: assign.Chunk, final: assign.Final, blame: assign.Blame}
	r.ctx, r.cancel = context.WithCancel(ctx)
	var err error
	if r.reader, err = w.startReading(r.ctx, assign); err != nil {
		r.cancel()
		return nil, err
	}
	r.out = w.startWriting(assign, r.reader.recycle)
	return r, nil
}

// shares reports whether the chunk may hand back what it has not begun. It must have begun
// something: otherwise workers that wait for the same files could pass it to each other
// forever. A paused one begins nothing.
func (r *chunkRun) shares() bool {
	_, paused := r.worker.pace.paused()
	return paused || r.unsubmitted.First > r.first
}

// interrupt ends the chunk before the batches that are not finished.
func (r *chunkRun) interrupt() {
	r.leave()
	r.interrupted = true
}

// reportRemainder hands back what was never sent, before the chunk ends.
func (r *chunkRun) reportRemainder(rest chunk.Chunk) {
	r.handedBack = &rest
	r.worker.send(wire.Message{Remainder: &wire.Remainder{Chunk: r.id, Rest: rest, InFlight: rest.First - r.rest.First}})
	crash.Point("worker-handed-back")
	r.reader.reportReadComplete()
}

// pass takes a finished batch.
func (r *chunkRun) pass(task *batchTask) error {
	if task.window != nil {
		return r.settle(task)
	}
	return r.write(task)
}

// write sends a finished batch, or window, to the writer.
func (r *chunkRun) write(task *batchTask) error {
	r.rest = task.batch.Rest()
	select {
	case r.out.tasks <- task:
		return nil
	default:
	}
	waiting := time.Now()
	defer func() { r.stats.Output += time.Since(waiting) }()
	select {
	case r.out.tasks <- task:
		return nil
	case <-r.out.broken:
		return r.out.err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// addBusy counts time in which the kernel had work.
func (r *chunkRun) addBusy(took time.Duration) {
	r.stats.Busy += took
	r.worker.busy.Add(int64(took))
}

// close ends the chunk after its last finished batch and returns the outcome. On error it
// discards the part.
func (r *chunkRun) close(err error) (wire.Done, error) {
	defer r.cancel()
	defer r.reader.stop()
	if err == nil && len(r.windows) > 0 {
		err = r.endWindow()
	}
	end := r.rest
	if r.elsewhere != nil {
		end = *r.elsewhere
	}
	if r.handedBack != nil {
		r.rest = r.rest.Before(*r.handedBack)
	}
	segment, writeErr := r.out.finish(end, err != nil || r.ctx.Err() != nil)
	if err == nil {
		err = writeErr
	}
	if err != nil {
		return wire.Done{}, err
	}
	done := wire.Done{Chunk: r.id, Segment: segment, Stats: r.takeStats(), First: r.out.takeFirst(), Elsewhere: r.elsewhere, Crowded: r.crowded}
	if r.rest.Records > 0 {
		done.Rest = &r.rest
	}
	return done, nil
}

// cut ends the part after its last finished batch and continues with the rest of the chunk in
// another part. It returns the outcome of the first.
func (r *chunkRun) cut(part string) (wire.Done, error) {
	segment, err := r.out.finish(r.rest, false)
	if err != nil {
		return wire.Done{}, err
	}
	rest := r.rest
	if r.handedBack != nil {
		rest = rest.Before(*r.handedBack)
	}
	done := wire.Done{Chunk: r.id, Segment: segment, Stats: r.takeStats(), Rest: &rest, Continues: true}
	computed := r.out.progress.computed - done.Segment.Tally.Records
	r.first = rest.First
	r.out = r.worker.startWriting(wire.Assign{ID: r.id, Chunk: rest, Part: part}, r.reader.recycle)
	r.out.computed(max(0, int(computed)))
	return done, nil
}

// takeStats returns the statistics since the last call. The part must be closed.
func (r *chunkRun) takeStats() wire.Stats {
	stats := r.stats
	stats.Nulls, stats.BatchSize, stats.Latency = r.out.nulls(), r.worker.sizes.found(), r.out.takeLatency()
	stats.Faulty = r.out.suspects.faulty()
	stats.Latency.Merge(r.late)
	r.reader.fetch.moveTo(&stats)
	r.stats, r.late = wire.Stats{}, histogram.Histogram{}
	return stats
}

// reopen starts the kernel for the chunk. The error is errOverdue if the job no longer waits for it.
func (r *chunkRun) reopen(ctx context.Context) error {
	ctx, cancel := r.worker.stops.untilOverdue(ctx)
	defer cancel()
	r.stats.Restarts++
	_, err := r.worker.host.alive(ctx)
	if err != nil && closed(r.worker.stops.overdue) {
		return errOverdue
	}
	return err
}
