package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/judge"
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

// askInterval is how often to ask for another task while the source has none: a stream
// may continue at any time.
const askInterval = 20 * time.Millisecond

// assign sends the worker a task. A send error means that the worker has exited, which
// runTask notices.
func (s *slotRun) assign(t task) *heldTask {
	key := s.slot.Key()
	h := &heldTask{task: t, id: s.fleet.assignments.Add(1), exits: s.fleet.roster.registry.Exits(key)}
	s.worker.Send(wire.Message{Assign: &wire.Assign{
		ID: h.id, Chunk: s.fleet.Locate(t.chunk), New: !t.returned && !s.fleet.Resumed, Part: s.fleet.partPath(t),
		Final: len(s.fleet.queue.untried(addDevice(t.tried, key))) == 0 && !s.fleet.roster.registry.Shared(key), Blame: t.blame,
	}})
	return h
}

// hand is the tasks that a worker has.
type hand struct {
	lane    Lane
	current *heldTask   // what it computes; nil between two tasks
	ahead   []*heldTask // what it was given in addition, in order
}

// all returns the tasks, the current one first.
func (h *hand) all() []*heldTask {
	if h.current == nil {
		return h.ahead
	}
	return append([]*heldTask{h.current}, h.ahead...)
}

// find returns the task with an ID, nil if the worker does not have it.
func (h *hand) find(id int64) *heldTask {
	for _, t := range h.all() {
		if t.id == id {
			return t
		}
	}
	return nil
}

// remove forgets a task that is done.
func (h *hand) remove(t *heldTask) {
	if h.current == t {
		h.current = nil
	}
	h.ahead = slices.DeleteFunc(h.ahead, func(other *heldTask) bool { return other == t })
}

// load is the sum of a worker's tasks.
type load struct {
	counts     chunk.Counts   // of the parts in progress
	outcomes   judge.Outcomes // of those
	kept       int64          // records of those that the loss of the worker does not cost
	size, done int64          // records of the tasks that it computes, and of those that are computed
}

// load sums up the tasks.
func (h *hand) load() (l load) {
	for i, t := range h.all() {
		l.counts.Add(t.done)
		l.outcomes = l.outcomes.Plus(outcomesOf(t.done, t.faulty))
		l.kept += h.lane.kept(t)
		if i < h.lane.Open {
			l.size, l.done = l.size+t.chunk.Records, l.done+t.done.Records+t.ahead
		}
	}
	return l
}

// mayHoldMore reports whether the worker may get another task: it has read all that it has.
func (s *slotRun) mayHoldMore() bool {
	held, lane := s.hand.all(), s.hand.lane
	return len(held) < lane.Held && !s.idles() && !slices.ContainsFunc(held, func(h *heldTask) bool { return !h.read || !lane.joins(h.task) })
}

// prefetch gives the worker another task if it may get one.
func (s *slotRun) prefetch(ctx context.Context) {
	if !s.mayHoldMore() {
		return
	}
	if next, ok := s.fleet.queue.takeAhead(ctx, s.slot.Key(), s.slot.Number, s.fleet.Lane.joins); ok {
		s.hand.ahead = append(s.hand.ahead, s.assign(next))
		s.noteLoad()
	}
}

// asking returns when to ask for another task again, nil if the worker needs none.
func (s *slotRun) asking() <-chan time.Time {
	if !s.mayHoldMore() {
		return nil
	}
	return time.After(askInterval)
}

// noteLoad records how much of what the worker has is computed.
func (s *slotRun) noteLoad() {
	l := s.hand.load()
	s.fleet.roster.holds(s.slot, l.size, l.done)
}

// giveBackAhead returns the tasks that the worker has ahead of the current one.
func (s *slotRun) giveBackAhead(lost bool) {
	for _, h := range s.hand.ahead {
		h.alone = h.alone || lost
		s.fleet.queue.giveBack(h.task)
	}
	s.hand.ahead = nil
}
