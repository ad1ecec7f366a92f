package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// heldTask is a task that a worker has.
type heldTask struct {
	task
	id    int64        // of its assignment
	exits int          // of workers of the device, before
	read  bool         // the worker has read all of it
	done  chunk.Counts // of the current part
	// faulty is how many records of that failed in the kernel, sample one of them.
	faulty int64
	sample *wire.Suspect
	// ahead is how many further records are computed, but not written yet.
	ahead int64
}

// A worker gets another task when it has read all of those that it has. With a batch kernel
// that is one task ahead of the current one. Those of a concurrent kernel end in any order,
// so a slow record holds up only its own.

const (
	// leastHeld is how many tasks the worker of a concurrent kernel may hold, whatever the
	// kernel's number of records in flight. Each has a record without an answer.
	leastHeld = 256
	// askInterval is how often to ask for another task while the source has none: a stream
	// may continue at any time.
	askInterval = 20 * time.Millisecond
)

// assign sends the worker a task. A send error means that the worker has exited, which
// runTask notices.
func (s *slotRun) assign(t task) *heldTask {
	key := s.slot.key()
	h := &heldTask{task: t, id: s.job.assignments.Add(1), exits: s.job.registry.Exits(key)}
	_ = s.worker.conn.Send(wire.Message{Assign: &wire.Assign{
		ID: h.id, Chunk: s.job.forWorker(t.chunk), New: !t.returned && s.job.earlier == nil, Part: s.job.partPath(t),
		Final: s.job.queue.final(t, key) && !s.job.registry.Shared(key), Blame: t.blame,
	}})
	return h
}

// held returns all tasks of the worker, the current one first.
func (s *slotRun) held() []*heldTask {
	if s.current == nil {
		return s.ahead
	}
	return append([]*heldTask{s.current}, s.ahead...)
}

// find returns the task with an ID, nil if the worker does not have it.
func (s *slotRun) find(id int64) *heldTask {
	for _, h := range s.held() {
		if h.id == id {
			return h
		}
	}
	return nil
}

// mayHoldMore reports whether the worker may get another task.
func (s *slotRun) mayHoldMore() bool {
	held := s.held()
	if s.idles() || slices.ContainsFunc(held, func(h *heldTask) bool { return !h.read || !s.mayJoin(h.task) }) {
		return false
	}
	most := 2
	if n := s.job.plan.Info.Concurrency; n > 0 {
		most = max(leastHeld, n)
	}
	return len(held) < most
}

// mayJoin reports whether a task may be computed together with others. A task with which a worker
// was lost may not: if it is computed alone, it is to blame for the next loss. The records of a
// concurrent kernel may take long, so only the last attempt is made that way.
func (s *slotRun) mayJoin(t task) bool {
	if s.job.plan.Info.Concurrency > 0 {
		return t.attempts < max(1, s.job.config.Failures.Retries)
	}
	return t.fresh()
}

// prefetch gives the worker another task if it may get one.
func (s *slotRun) prefetch(ctx context.Context) {
	if !s.mayHoldMore() {
		return
	}
	if next, ok := s.job.queue.takeAhead(ctx, s.slot.key(), s.slot.Number, s.mayJoin); ok {
		s.ahead = append(s.ahead, s.assign(next))
		s.noteLoad()
	}
}

// asking returns when to ask for another task again, nil if the worker needs none. For a batch
// kernel, runTask asks only once, when the worker has read its task.
func (s *slotRun) asking() <-chan time.Time {
	if s.job.plan.Info.Concurrency == 0 || !s.mayHoldMore() {
		return nil
	}
	return time.After(askInterval)
}

// noteLoad records how much of what the worker has is computed.
func (s *slotRun) noteLoad() {
	held := s.held()
	if s.job.plan.Info.Concurrency == 0 && s.current != nil {
		held = held[:1] // it has not begun the next one
	}
	var size, done int64
	for _, h := range held {
		size, done = size+h.chunk.Records, done+h.done.Records+h.ahead
	}
	s.job.fleet.holds(s.slot, size, done)
}

// counts returns the counts of all tasks of the worker that are not booked.
func (s *slotRun) counts() (counts chunk.Counts) {
	for _, h := range s.held() {
		counts.Add(h.done)
	}
	return counts
}

// answered returns how many further records of the worker have an answer. Only those of a
// concurrent kernel are kept if the worker is lost.
func (s *slotRun) answered() (n int64) {
	if s.job.plan.Info.Concurrency == 0 {
		return 0
	}
	for _, h := range s.held() {
		n += h.ahead
	}
	return n
}

// beyond returns how many records of the worker have an answer, are not booked, and are not among
// the counted ones.
func (s *slotRun) beyond(counted chunk.Counts) int64 {
	if s.job.plan.Info.Concurrency == 0 {
		return 0
	}
	return s.counts().Records + s.answered() - counted.Records
}

// heldRecords returns how many records the worker of a concurrent kernel has in its chunks;
// 0 with other kernels.
func (s *slotRun) heldRecords() (n int64) {
	if s.job.plan.Info.Concurrency == 0 {
		return 0
	}
	for _, h := range s.held() {
		n += h.chunk.Records
	}
	return n
}

// remove forgets a task that is done.
func (s *slotRun) remove(h *heldTask) {
	if s.current == h {
		s.current = nil
	}
	s.ahead = slices.DeleteFunc(s.ahead, func(other *heldTask) bool { return other == h })
}

// giveBackAhead returns the tasks that the worker has ahead of the current one.
func (s *slotRun) giveBackAhead(lost bool) {
	for _, h := range s.ahead {
		h.alone = h.alone || lost
		s.job.queue.giveBack(h.task)
	}
	s.ahead = nil
}
