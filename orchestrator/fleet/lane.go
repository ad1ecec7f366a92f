package fleet

import "github.com/gpurun/gpurun/orchestrator/queue"

// Lane is how the workers of a kernel take chunks. It is chosen once, when the kernel has
// described itself.
type Lane struct {
	// Held is how many chunks a worker may hold, and Open how many of those it computes at a
	// time.
	Held, Open int
	// Logged: what is answered is logged at once, so that a lost worker costs no answers.
	Logged bool
	// joins reports whether a task may be computed together with others. A task with which a
	// worker was lost may not: if it is computed alone, it is to blame for the next loss.
	joins func(queue.Task) bool
	// kept is how many records of a task the loss of its worker does not cost.
	kept func(*heldTask) int64
}

// leastHeld is how many chunks the worker of a kernel that computes records one by one may
// hold, whatever its number of records in flight. Each has a record without an answer.
const leastHeld = 256

// BatchLane is the lane of a kernel that computes batches: a worker prefetches one chunk.
func BatchLane() Lane {
	return Lane{Held: 2, Open: 1, joins: queue.Task.Fresh, kept: func(*heldTask) int64 { return 0 }}
}

// RecordLane is the lane of a kernel that computes a number of records at a time, one by one. Its
// chunks end in any order, so that a slow record holds up only its own. Records may take long,
// so only the last attempt is made alone.
func RecordLane(concurrency, retries int) Lane {
	held := max(leastHeld, concurrency)
	return Lane{
		Held: held, Open: held, Logged: true,
		joins: func(t queue.Task) bool { return t.Attempts < max(1, retries) },
		kept:  func(h *heldTask) int64 { return h.done.Records + h.ahead },
	}
}
