package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
	"github.com/gpurun/gpurun/worker/early"
)

// giveUp writes a chunk with every record marked as failed, except for those whose answers are
// logged.
func (f *Fleet) giveUp(ctx context.Context, t queue.Task, why *fault.Error) (segment chunk.Segment, err error) {
	if early.Holds(f.Parts, t.Chunk.First, t.Chunk.First+t.Chunk.Records) {
		segment, err = f.writeAnswers(ctx, t, why)
	} else {
		segment, err = f.GiveUp(t.Chunk, f.partPath(t), why)
	}
	if err != nil {
		return segment, err
	}
	f.Emit(event.ChunkGivenUp{First: t.Chunk.First, Records: t.Chunk.Records, Failed: segment.Tally.Failed, Counts: segment.Tally, Fault: why})
	return segment, nil
}

// writeAnswers lets a worker without a kernel and a device write a chunk that is given up: only
// workers turn answers into lines.
func (f *Fleet) writeAnswers(ctx context.Context, t queue.Task, why *fault.Error) (chunk.Segment, error) {
	w, err := f.Process.Start(fmt.Sprintf("give-up-%d", f.numbers.Add(1)), func(setup *wire.Setup) {
		setup.GiveUp, setup.Fetch, setup.Records.BytesRead, setup.Proven = why, wire.Fetch{}, nil, nil
	})
	if err != nil {
		return chunk.Segment{}, err
	}
	defer w.Kill()
	w.Send(wire.Message{Assign: &wire.Assign{Chunk: f.Locate(t.Chunk), Part: f.partPath(t)}})
	for {
		message, err := w.Receive(ctx, nil)
		switch {
		case ctx.Err() != nil:
			return chunk.Segment{}, ctx.Err()
		case err != nil:
			return chunk.Segment{}, w.Lost(err)
		case message.Failed != nil:
			return chunk.Segment{}, message.Failed.Fault
		case message.Layout != nil:
			if e := f.leader.answer(ctx, w, t.Chunk.First, *message.Layout); e != nil {
				return chunk.Segment{}, e
			}
		case message.Done != nil:
			w.End()
			return message.Done.Segment, nil
		}
	}
}

// partPath returns a path for a part that contains its first record's number and is
// unique, so that no two attempts, including those of earlier runs, write to the same
// file.
func (f *Fleet) partPath(t queue.Task) string {
	return filepath.Join(f.Parts, fmt.Sprintf("%012d-%08x", t.Chunk.First, rand.Uint32()))
}
