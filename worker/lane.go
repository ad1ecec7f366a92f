package worker

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/worker/early"
)

// lane is one chunk on its way through the kernel, with a reader and a writer of its own. It ends when
// its records are written, whatever happens in the others: a slow record of a concurrent kernel holds
// up only its own chunk.
type lane struct {
	wire.Assign
	worker      *Worker
	ctx         context.Context
	cancel      context.CancelFunc
	reader      *batchReader
	out         *partWriter // of the current part
	cuts        int         // how often it has ended a part and begun another
	log         *early.Log  // of the answers of a concurrent kernel
	groups      groups      // that are not complete
	number      int64       // counts the worker's chunks, from 1
	read        bool        // nothing remains to be read
	ended       bool        // no further batch is submitted
	halted      bool        // no record is sent to a concurrent kernel at all
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
	// held is how much is read for a concurrent kernel and not written: records, and the bytes of
	// lines and answers.
	held load
}

// begin starts reading a chunk. Unless the chunk is new, it imports the answers that are logged for it.
func (w *Worker) begin(ctx context.Context, assign wire.Assign, syncer *early.Syncer) (*lane, error) {
	first, end := assign.Chunk.First, assign.Chunk.First+assign.Chunk.Records
	w.begun++
	l := &lane{
		Assign: assign, worker: w, number: w.begun, unsubmitted: assign.Chunk, rest: assign.Chunk,
		log: early.New(filepath.Dir(assign.Part), first, end, syncer),
	}
	if !assign.New {
		if err := l.log.Import(); err != nil {
			return nil, fault.JobFiles.Wrap(err)
		}
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	var err error
	if l.reader, err = w.startReading(l.ctx, assign); err != nil {
		l.cancel()
		return nil, err
	}
	l.out = w.startWriting(assign, l.reader.recycle)
	return l, nil
}

// shares reports whether the chunk may hand back what it has not begun. It must have begun
// something: otherwise workers that wait for the same files could pass it to each other
// forever. A paused one begins nothing.
func (l *lane) shares() bool {
	_, paused := l.worker.pace.paused()
	return paused || l.unsubmitted.First > l.out.assign.Chunk.First
}

// interrupt ends the chunk before the batches that are not finished.
func (l *lane) interrupt() {
	l.leave()
	l.interrupted = true
}

// handBack ends the chunk before what was never sent. While others of its records are in flight, it
// reports that at once, so that other workers can have it; otherwise the end of the chunk does.
func (l *lane) handBack(rest chunk.Chunk, inFlight bool) {
	l.ended = true
	if !inFlight || rest.Records == 0 || l.handedBack != nil {
		return
	}
	l.handedBack = &rest
	l.worker.send(wire.Message{Remainder: &wire.Remainder{Chunk: l.ID, Rest: rest, InFlight: rest.First - l.rest.First}})
	crash.Point("worker-handed-back")
	l.reader.reportReadComplete()
}

// write sends a finished group to the writer.
func (l *lane) write(task *batchTask) error {
	l.rest = task.batch.Rest()
	return l.out.add(l.ctx, task)
}

// close ends the lane after the records that are written together with those before them, and reports
// the outcome. The answers behind that stay in the log. The kernel must not have records of the lane. On
// error it discards the part.
func (l *lane) close(err error) error {
	if err == nil && len(l.groups) > 0 {
		err = l.endGroup()
	}
	if err == nil {
		err = l.rotate()
	}
	l.log.Close()
	done, err := l.endLastPart(err)
	l.reader.stop()
	l.cancel()
	if err == nil {
		l.worker.report(done)
	}
	return err
}

// endLastPart ends the part with the chunk.
func (l *lane) endLastPart(err error) (wire.Done, error) {
	if err != nil || l.ctx.Err() != nil {
		_, writeErr := l.out.finish(l.rest, true)
		return wire.Done{}, cmp.Or(err, writeErr, l.ctx.Err())
	}
	end := l.rest
	if l.elsewhere != nil {
		end = *l.elsewhere
	}
	done, err := l.endPart(end)
	done.Elsewhere, done.Crowded = l.elsewhere, l.crowded
	return done, err
}

// endPart ends the part; end is what follows its last record. It returns the outcome.
func (l *lane) endPart(end chunk.Chunk) (wire.Done, error) {
	segment, err := l.out.finish(end, false)
	if err != nil {
		return wire.Done{}, err
	}
	done := wire.Done{Chunk: l.ID, Segment: segment, Stats: l.out.statistics()}
	if l.reader.fetch != nil {
		done.Stats.Figures = l.reader.fetch.figures.reset()
	}
	if rest := l.remaining(); rest.Records > 0 {
		done.Rest = &rest
	}
	return done, nil
}

// remaining returns what follows the last finished group and was not handed back.
func (l *lane) remaining() chunk.Chunk {
	if l.handedBack != nil {
		return l.rest.Before(*l.handedBack)
	}
	return l.rest
}

// cut meets the request to end the part: after its last finished group, so that it can be committed.
// The rest of the chunk continues in another part; nothing is read or computed again. If nothing
// remains, the chunk is about to end.
func (l *lane) cut() error {
	l.worker.stops.forget(l)
	if l.rest.First == l.out.assign.Chunk.First || l.remaining().Records == 0 {
		return nil
	}
	if err := l.rotate(); err != nil {
		return err
	}
	done, err := l.endPart(l.rest)
	if err != nil {
		return err
	}
	done.Continues = true
	computed := l.out.progress.computed - done.Segment.Tally.Records
	l.cuts++
	l.out = l.worker.startWriting(wire.Assign{ID: l.ID, Chunk: *done.Rest, Part: fmt.Sprintf("%s-%d", l.Part, l.cuts)}, l.reader.recycle)
	l.out.computed(max(0, int(computed)))
	l.worker.report(done)
	return nil
}

// rotate ends the part of the log with the part that ends.
func (l *lane) rotate() error {
	return fault.JobFiles.Wrap(l.log.Rotate(l.rest.First, l.out.assign.Part))
}
