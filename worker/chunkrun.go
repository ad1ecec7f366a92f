package worker

import (
	"cmp"
	"context"
	"fmt"
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
	groups      []*group    // that are not complete, in order
	id          int64       // of the assignment
	part        string      // the prefix of its parts' names
	cuts        int         // how often it has ended a part and begun another
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
	r := &chunkRun{worker: w, id: assign.ID, part: assign.Part, number: w.begun, first: assign.Chunk.First, unsubmitted: assign.Chunk, rest: assign.Chunk, final: assign.Final, blame: assign.Blame}
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

// handBack ends the chunk before what was never sent. While others of its records are in flight, it
// reports that at once, so that other workers can have it; otherwise the end of the chunk does.
func (r *chunkRun) handBack(rest chunk.Chunk, inFlight bool) {
	r.ended = true
	if !inFlight || rest.Records == 0 || r.handedBack != nil {
		return
	}
	r.handedBack = &rest
	r.worker.send(wire.Message{Remainder: &wire.Remainder{Chunk: r.id, Rest: rest, InFlight: rest.First - r.rest.First}})
	crash.Point("worker-handed-back")
	r.reader.reportReadComplete()
}

// write sends a finished group to the writer.
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

func (r *chunkRun) countBatch() {
	r.stats.Batches++
	r.worker.batches.Add(1)
}

// addBusy counts time in which the kernel had work.
func (r *chunkRun) addBusy(took time.Duration) {
	r.stats.Busy += took
	r.worker.busy.Add(int64(took))
}

// close ends the chunk after its last finished group and returns the outcome. On error it
// discards the part.
func (r *chunkRun) close(err error) (wire.Done, error) {
	defer r.cancel()
	defer r.reader.stop()
	if err != nil || r.ctx.Err() != nil {
		_, writeErr := r.out.finish(r.rest, true)
		return wire.Done{}, cmp.Or(err, writeErr, r.ctx.Err())
	}
	end := r.rest
	if r.elsewhere != nil {
		end = *r.elsewhere
	}
	done, err := r.endPart(end)
	done.Elsewhere, done.Crowded = r.elsewhere, r.crowded
	return done, err
}

// endPart ends the part; end is what follows its last record. It returns the outcome.
func (r *chunkRun) endPart(end chunk.Chunk) (wire.Done, error) {
	segment, err := r.out.finish(end, false)
	if err != nil {
		return wire.Done{}, err
	}
	done := wire.Done{Chunk: r.id, Segment: segment, Stats: r.takeStats()}
	if rest := r.remaining(); rest.Records > 0 {
		done.Rest = &rest
	}
	return done, nil
}

// remaining returns what follows the last finished group and was not handed back.
func (r *chunkRun) remaining() chunk.Chunk {
	if r.handedBack != nil {
		return r.rest.Before(*r.handedBack)
	}
	return r.rest
}

// mayCut takes the request to end the part, and reports whether there is something to commit. If
// nothing remains, the chunk is about to end.
func (r *chunkRun) mayCut() bool {
	r.worker.stops.forget(r)
	return r.rest.First > r.first && r.remaining().Records > 0
}

// cut ends the part after its last finished group, so that it can be committed, and continues with
// the rest of the chunk in another part. Nothing is read or computed again.
func (r *chunkRun) cut() error {
	done, err := r.endPart(r.rest)
	if err != nil {
		return err
	}
	done.Continues = true
	computed := r.out.progress.computed - done.Segment.Tally.Records
	r.first, r.cuts = done.Rest.First, r.cuts+1
	r.out = r.worker.startWriting(wire.Assign{ID: r.id, Chunk: *done.Rest, Part: r.partName()}, r.reader.recycle)
	r.out.computed(max(0, int(computed)))
	r.worker.report(done)
	return nil
}

// partName returns the prefix of the names of the current part's files.
func (r *chunkRun) partName() string {
	if r.cuts == 0 {
		return r.part
	}
	return fmt.Sprintf("%s-%d", r.part, r.cuts)
}

// takeStats returns the statistics since the last call. The part must be closed.
func (r *chunkRun) takeStats() wire.Stats {
	stats := r.stats
	stats.Nulls, stats.BatchSize, stats.Latency = r.out.nulls(), r.worker.sizes.found(), r.out.takeLatency()
	stats.Faulty = r.out.suspects.faulty()
	stats.Latency.Merge(r.late)
	if r.reader.fetch != nil {
		stats.Figures = r.reader.fetch.figures.reset()
	}
	r.stats, r.late = wire.Stats{}, histogram.Histogram{}
	return stats
}
