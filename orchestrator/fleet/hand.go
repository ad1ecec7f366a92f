package fleet

import (
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

// heldTask is a task that a worker has.
type heldTask struct {
	queue.Task
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

// load sums up the tasks. A probe counts for its device only once it has ended.
func (h *hand) load() (l load) {
	for i, t := range h.all() {
		l.counts.Add(t.done)
		l.outcomes = l.outcomes.Plus(outcomesOf(t.done, t.faulty))
		l.kept += h.lane.kept(t)
		if i < h.lane.Open {
			l.size, l.done = l.size+t.Chunk.Records, l.done+t.done.Records+t.ahead
		}
	}
	return l
}

// mayGrow reports whether the worker may get another task: it has read all that it has.
func (h *hand) mayGrow() bool {
	held := h.all()
	return len(held) < h.lane.Held && !slices.ContainsFunc(held, func(t *heldTask) bool { return !t.read || !h.lane.joins(t.Task) })
}
