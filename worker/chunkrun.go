package worker

import (
	"context"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// chunkRun is one chunk going through the kernel.
type chunkRun struct {
	worker *Worker
	ctx    context.Context
	cancel context.CancelFunc
	reader *batchReader
	out    *partWriter
	first  int64       // record of it
	number int64       // it is the worker's so many-th chunk
	ended  bool        // no further batch of it is submitted
	behind chunk.Chunk // behind the last batch that is submitted
	rest   chunk.Chunk // behind the last batch that is finished
	// elsewhere is the record before rest, if that is for another device.
	elsewhere *chunk.Chunk
	// interrupted: the job stops in the middle of a search, and the chunk ends before
	// the batch that is searched.
	interrupted bool
	// left is what was handed back while batches were in flight.
	left  *chunk.Chunk
	blame bool // a failure that reads like a lost device is the record's, if nothing tells
	final bool // no other device is left for what does not fit this one
	stats wire.Stats
}

// begin starts to read a chunk.
func (w *Worker) begin(ctx context.Context, assign wire.Assign) (*chunkRun, error) {
	w.begun++
	r := &chunkRun{worker: w, number: w.begun, first: assign.Chunk.First, behind: assign.Chunk, rest: assign.Chunk, final: assign.Final, blame: assign.Blame}
	r.ctx, r.cancel = context.WithCancel(ctx)
	var err error
	if r.reader, err = w.startReading(r.ctx, assign.Chunk); err != nil {
		r.cancel()
		return nil, err
	}
	r.out = w.startWriting(assign, r.reader.give)
	return r, nil
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

// close ends the chunk behind its last finished batch, and says what came of it; with
// an error nothing is left of it.
func (r *chunkRun) close(err error) (wire.Done, error) {
	defer r.cancel()
	defer r.reader.stop()
	end := r.rest
	if r.elsewhere != nil {
		end = *r.elsewhere
	}
	if r.left != nil {
		r.rest = r.rest.Before(*r.left)
	}
	segment, writeErr := r.out.finish(end, err != nil || r.ctx.Err() != nil)
	if err == nil {
		err = writeErr
	}
	if err != nil {
		return wire.Done{}, err
	}
	r.stats.Nulls, r.stats.BatchSize = r.out.nulls(), r.worker.sizes.found()
	done := wire.Done{Segment: segment, Stats: r.stats, First: r.out.takeFirst(), Elsewhere: r.elsewhere}
	if r.rest.Records > 0 {
		done.Rest = &r.rest
	}
	return done, nil
}
