package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/worker/early"
)

// giveUp writes a chunk with every record marked as failed, except for those whose answers are
// logged.
func (j *job) giveUp(ctx context.Context, t task, why *fault.Error) (segment chunk.Segment, err error) {
	if j.hasAnswers(t.chunk) {
		segment, err = j.writeAnswers(ctx, t, why)
	} else {
		segment, err = commit.GiveUp(t.chunk, commit.PartOptions{
			Path:        j.partPath(t),
			ErrorsApart: j.config.Output.Errors != "", Framed: j.config.framed || j.config.streaming, FrameFailures: j.config.streaming, Step: j.config.Kernel.Name,
			Rows: j.layout != nil, Table: j.spec.IsTable(), Batch: j.config.Format == OpenAIBatch,
		}, j.config.Input.MaxRecordBytes, why)
	}
	if err != nil {
		return segment, err
	}
	j.emit(ChunkGivenUp{First: t.chunk.First, Records: t.chunk.Records, Failed: segment.Tally.Failed, Counts: segment.Tally, Fault: why})
	return segment, nil
}

// hasAnswers reports whether an answer is logged for a record of a chunk.
func (j *job) hasAnswers(c chunk.Chunk) bool {
	return j.plan.Info.Concurrency > 0 && early.Holds(j.folder.join(commit.PartsDir), c.First, c.First+c.Records)
}

// writeAnswers lets a worker without a kernel and a device write a chunk that is given up: only
// workers turn answers into lines.
func (j *job) writeAnswers(ctx context.Context, t task, why *fault.Error) (chunk.Segment, error) {
	name := fmt.Sprintf("give-up-%d", j.assignments.Add(1))
	dir := filepath.Join(j.runDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return chunk.Segment{}, fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	setup := j.setup(dir)
	setup.GiveUp, setup.Fetch, setup.Proven = why, wire.Fetch{}, nil
	w, err := startWorker(workerOptions{
		binary: j.config.WorkerBinary, label: name, setup: setup,
		env: workerEnv([]string{"CUDA_VISIBLE_DEVICES="}, j.config.cores()),
		log: filepath.Join(j.runDir, name+".log"),
	})
	if err != nil {
		return chunk.Segment{}, err
	}
	_ = w.conn.Send(wire.Message{Assign: &wire.Assign{Chunk: j.forWorker(t.chunk), Part: j.partPath(t)}})
	for {
		message, err := w.receive(ctx, nil)
		switch {
		case ctx.Err() != nil:
			w.kill()
			return chunk.Segment{}, ctx.Err()
		case err != nil:
			return chunk.Segment{}, w.lost(err)
		case message.Failed != nil:
			w.kill()
			return chunk.Segment{}, message.Failed.Fault
		case message.Layout != nil:
			if e := j.answerLayout(ctx, w, t.chunk.First, *message.Layout); e != nil {
				w.kill()
				return chunk.Segment{}, e
			}
		case message.Done != nil:
			w.end()
			return message.Done.Segment, nil
		}
	}
}
