package orchestrator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// assign sends the worker a task. A send error means that the worker has exited, which
// runTask notices.
func (s *slotRun) assign(t task) {
	key := s.slot.key()
	_ = s.worker.conn.Send(wire.Message{Assign: &wire.Assign{
		Chunk: s.job.forWorker(t.chunk), Part: s.job.partPath(t), Final: s.job.queue.final(t, key) && !s.job.registry.Shared(key),
		Blame: t.blame,
	}})
}

// runTask follows the worker's task to its end: the end of the chunk, or the next
// checkpoint if that comes first.
func (s *slotRun) runTask(ctx context.Context, t task) (retired bool, err error) {
	s.job.fleet.assigned(s.slot, t)
	worker, first := s.worker, t.chunk.First
	// A stop or pause may have been sent to the worker before this chunk: repeat it.
	switch {
	case !s.job.state.running():
		s.worker.endJob(s.job.config.Resume.DrainTimeout)
	case s.idles():
		s.worker.endChunk()
	}
	checkpoint := newCheckpoint(s.job.config.Resume.Checkpoint, func() { worker.endOnly(first) })
	defer checkpoint.stop()
	defer s.watchFirst()()
	defer s.job.leader.begin(first)()
	s.job.emit(ChunkStarted{Slot: s.slot.Number, Device: s.slot.Name, First: t.chunk.First, Records: t.chunk.Records})
	for {
		message, err := s.worker.receive(ctx)
		switch {
		case ctx.Err() != nil:
			s.job.queue.giveBack(t)
			return true, nil
		case err != nil:
			return s.handleLoss(ctx, &t, s.worker.lost(err), false)
		case message.Progress != nil:
			s.job.stall.answered.Store(true)
			if message.Progress.Counts.Records > 0 {
				checkpoint.batchDone()
			}
			s.progress(t, *message.Progress)
			s.job.monitor.noteMemory(s.slot, message.Progress.Memory)
			s.noteFirst(ctx, message.Progress.First)
		case message.Search != nil:
			s.job.stall.answered.Store(true)
			s.noteSearch(ctx, *message.Search)
		case message.Holding != nil:
			s.noteHolding(*message.Holding)
		case message.Warned != nil:
			s.job.warn(s.slot, message.Warned.Warnings)
		case message.Layout != nil:
			if e := s.answerLayout(ctx, first, *message.Layout); e != nil {
				return s.handleLoss(ctx, &t, e, true)
			}
		case message.ReadComplete != nil:
			s.prefetch(ctx, t)
		case message.ReturnPrefetched != nil:
			s.takeBackPrefetched()
		case message.Spent != nil:
			s.job.overspent(message.Spent.Blind)
		case message.Remainder != nil:
			if err := s.handBack(&t, *message.Remainder); err != nil {
				return false, err
			}
		case message.Done != nil:
			checkpoint.stop() // or it would end the next chunk
			return s.finishTask(ctx, t, *message.Done)
		case message.Failed != nil:
			return s.handleLoss(ctx, &t, cmp.Or(s.checkSources(message.Failed.Sources), message.Failed.Fault), true)
		}
	}
}

// prefetch gives the worker, which has read all of its task, another one in advance.
func (s *slotRun) prefetch(ctx context.Context, t task) {
	if s.prefetched != nil { // it has read that, too
		s.prefetchedRead = true
		return
	}
	if !t.fresh() || s.idles() {
		return
	}
	if next, ok := s.job.queue.takeAhead(ctx, s.slot.key(), s.slot.Number); ok {
		s.prefetched = &next
		s.assign(next)
	}
}

// takeBackPrefetched requeues the task that the worker was given in advance.
func (s *slotRun) takeBackPrefetched() {
	if s.prefetched != nil {
		s.job.queue.giveBack(*s.prefetched)
	}
	s.prefetched, s.prefetchedRead = nil, false
}

// finishTask takes the result of the worker's task.
func (s *slotRun) finishTask(ctx context.Context, t task, done wire.Done) (retired bool, err error) {
	s.job.stall.answered.Store(true)
	if e := s.checkSources(done.Sources); e != nil {
		return s.handleLoss(ctx, &t, e, true)
	}
	s.job.warn(s.slot, done.Warnings)
	s.noteFirst(ctx, done.First)
	again := done.Elsewhere != nil && s.makeRoom(ctx)
	err = s.deliver(ctx, t, done, again)
	if done.Crowded && err == nil {
		s.job.scaler.crowded(ctx, s)
	}
	return false, err
}

// idles reports whether the worker should not get more work for now.
func (s *slotRun) idles() bool {
	paused, _ := s.job.fleet.paused(s.slot)
	return paused || s.mustLeave() || s.threads.Load() > 0 || !s.job.state.running() || s.job.config.Control.paused() != nil
}

// checkSources checks the files that the worker reports. If they differ from the job's,
// the job stops and the worker's results are discarded; the returned fault is why the
// worker is lost.
func (s *slotRun) checkSources(list []wire.Source) *fault.Error {
	s.loaded = append(s.loaded, list...)
	e := s.job.sources.note(list)
	if e == nil || e.Kind != fault.Stopped {
		return e
	}
	s.job.drain(e)
	return fault.New(fault.Canceled, "%s", e.Message)
}

// partPath returns a path for a part that contains its first record's number and is
// unique, so that no two attempts, including those of earlier runs, write to the same
// file.
func (j *job) partPath(t task) string {
	return j.folder.join(commit.PartsDir, fmt.Sprintf("%012d-%s", t.chunk.First, randomName()[:8]))
}
