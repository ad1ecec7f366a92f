package fleet

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// task is a chunk with its history.
type task struct {
	chunk    chunk.Chunk
	attempts int      // workers lost while computing it
	tried    []string // devices that failed on it; others go first
	notFor   int      // the slot, counted from 1, that gave it away to a waiting one
	alone    bool     // a worker was lost that had prefetched it
	returned bool     // a worker had it, or what it is a part of
	doubted  []string // devices on which it failed with what only looks like a lost device
	blame    bool     // its records are to blame for that
	probe    *probe   // what its result decides; nil for a task whose result is committed
}

// fresh reports whether no worker was lost with the task. A task that is not fresh is
// computed by itself, so that the next loss can be blamed on it.
func (t task) fresh() bool { return t.attempts == 0 && len(t.tried) == 0 && !t.alone }

// rest is a part of the task that was not computed.
func (t task) rest(c chunk.Chunk) task { return task{chunk: c, attempts: t.attempts, tried: t.tried} }

// queue is where slots pull their chunks: returned tasks first, then the source. It is
// done when the source has ended and no slot holds a task that could still come back.
type queue struct {
	source chunks
	check  func(chunk.Chunk) error // the first chunk; nil once it is checked

	mu        sync.Mutex
	changed   *sync.Cond
	returned  []task
	held      int
	waiting   []waiter // slots that have nothing to do
	devices   devices  // with slots that may still take tasks
	promised  int      // slots that have left and will be back
	readers   sync.WaitGroup
	reading   bool            // a slot is waiting for the source
	ended     bool            // the source has no more
	err       error           // of the source
	dismissed map[int]bool    // slots that must leave
	limited   map[string]bool // devices that get only probes
	expelled  map[string]bool // devices that get nothing
	closed    bool
	done      chan struct{} // closed when no task will be handed out any more
}

// devices are the numbers of slots that participate, by device.
type devices map[string]int

// slots returns the number of all slots.
func (d devices) slots() (n int) {
	for _, slots := range d {
		n += slots
	}
	return n
}

// without returns the devices that are not among those that failed on a task.
func (d devices) without(tried []string) (list []string) {
	for device := range d {
		if !slices.Contains(tried, device) {
			list = append(list, device)
		}
	}
	return list
}

// fit reports whether a device may compute a task: a device that failed on it may not, as long
// as there is one that did not.
func (d devices) fit(t task, device string) bool {
	return !slices.Contains(t.tried, device) || len(d.without(t.tried)) == 0
}

// waiter is a slot that waits for a task, and its device.
type waiter struct {
	slot   int
	device string
}

// chunks are what a queue reads; see input.Source.
type chunks interface {
	Next(ctx context.Context) (chunk.Chunk, error)
	Ready() bool
}

func newQueue(source chunks) *queue {
	q := &queue{source: source, done: make(chan struct{}), devices: make(devices), dismissed: make(map[int]bool), limited: make(map[string]bool), expelled: make(map[string]bool)}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// join adds a slot of a device; leave removes it.
func (q *queue) join(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.expelled[device] {
		q.devices[device]++
	}
}

func (q *queue) leave(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.devices[device]--; q.devices[device] <= 0 {
		delete(q.devices, device)
	}
	q.broadcast()
}

// retreat removes a slot of a device that was lost. promised: it will be back. The queue is
// closed if no slot is left to take tasks.
func (q *queue) retreat(device string, promised bool) {
	if promised {
		q.mu.Lock()
		q.promised++
		q.mu.Unlock()
	}
	q.leave(device)
	q.withdraw(false)
}

// withdraw ends a promise, kept or not, and closes the queue if no slot is left to take tasks.
func (q *queue) withdraw(promised bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if promised {
		q.promised--
	}
	if q.devices.slots() == 0 && q.promised == 0 {
		q.closed = true
		q.broadcast()
	}
}

// dismiss makes a slot get no more tasks.
func (q *queue) dismiss(slot int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dismissed[slot] = true
	q.broadcast()
}

// continues reports whether the job continues without a slot that participates: others do, or
// will be back. A slot that was back in vain is not useful, and does not wait for those.
func (q *queue) continues(useful bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.devices.slots() > 1 || q.promised > 0 && useful
}

// take returns the next task for a slot of a device. It returns false when none
// remains, the queue was closed, or the source failed; the error says which.
func (q *queue) take(ctx context.Context, device string, slot int) (task, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || q.err != nil || q.dismissed[slot] || q.expelled[device] {
			return task{}, false, q.err
		}
		if t, ok := q.pick(func(t task) bool { return q.suits(t, device, slot) }); ok {
			return t, true, nil
		}
		switch {
		case q.isFinished():
			return task{}, false, nil
		case q.limited[device]:
			q.changed.Wait()
		case !q.ended && !q.reading && q.source.Ready():
			open, cancel := until(ctx, q.done)
			q.read(open)
			cancel()
		case !q.ended && !q.reading:
			// A stream may never deliver anything. The slot waits with others: it may get a task that
			// another slot gives back.
			q.reading = true
			open, cancel := until(ctx, q.done)
			q.readers.Go(func() {
				defer cancel()
				q.mu.Lock()
				defer q.mu.Unlock()
				q.read(open)
			})
		default:
			q.waiting = append(q.waiting, waiter{slot, device})
			q.changed.Wait()
			q.waiting = slices.DeleteFunc(q.waiting, func(w waiter) bool { return w.slot == slot })
		}
	}
}

// takeAhead returns a task for a slot that has nearly finished its last one, if a task is
// available that may join that one and that no slot is waiting for.
func (q *queue) takeAhead(ctx context.Context, device string, slot int, mayJoin func(task) bool) (task, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.err != nil || len(q.waiting) > 0 || q.dismissed[slot] || q.limited[device] {
		return task{}, false
	}
	suits := func(t task) bool { return mayJoin(t) && q.suits(t, device, slot) }
	if !q.ended && !q.reading && !slices.ContainsFunc(q.returned, suits) && q.source.Ready() {
		q.read(ctx)
	}
	if q.closed {
		return task{}, false
	}
	return q.pick(suits)
}

// pick takes the first of the returned tasks that suits.
func (q *queue) pick(suits func(task) bool) (t task, ok bool) {
	i := slices.IndexFunc(q.returned, suits)
	if i < 0 {
		return t, false
	}
	t = q.returned[i]
	q.returned = slices.Delete(q.returned, i, i+1)
	q.held++
	return t, true
}

// suits reports whether a slot may take a task. The slot that gave it away may not, as
// long as a waiting slot can take it.
func (q *queue) suits(t task, device string, slot int) bool {
	if q.limited[device] && t.probe == nil {
		return false
	}
	return q.devices.fit(t, device) && (t.notFor != slot+1 || !q.isWaitedFor(t))
}

// untried returns the participating devices that are not among those that failed on a task.
func (q *queue) untried(tried []string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.devices.without(tried)
}

// addProbe queues a probe before all other tasks, and reports whether a slot is waiting that
// may take it.
func (q *queue) addProbe(t task) (wanted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.returned = true
	q.returned = slices.Insert(q.returned, 0, t)
	q.broadcast()
	return q.isWaitedFor(t)
}

// isWaitedFor reports whether a waiting slot may take a task. The caller must hold q.mu.
func (q *queue) isWaitedFor(t task) bool {
	return slices.ContainsFunc(q.waiting, func(w waiter) bool { return q.devices.fit(t, w.device) })
}

// suspend counts a task that may come back, although no slot has it: giveBack or finish ends
// that. full: its device gets only probes until unlimit.
func (q *queue) suspend(device string, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held++
	if full {
		q.limited[device] = true
	}
}

func (q *queue) unlimit(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.limited, device)
	q.broadcast()
}

// expel removes all slots of a device for good.
func (q *queue) expel(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expelled[device] = true
	delete(q.devices, device)
	q.broadcast()
}

// idle returns the slots that have nothing to do while others are computing. dry: the queue is
// empty, unless tasks come back.
func (q *queue) idle() (slots []int, dry bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended || len(q.returned) > 0 {
		return nil, false
	}
	for _, w := range q.waiting {
		slots = append(slots, w.slot)
	}
	return slots, true
}

// read reads the source without holding the lock: a stream may block.
func (q *queue) read(ctx context.Context) {
	q.reading = true
	q.mu.Unlock()
	c, err := q.source.Next(ctx)
	if err == nil && q.check != nil {
		err = q.check(c)
		q.check = nil
	}
	q.mu.Lock()
	q.reading = false
	switch {
	case err == nil:
		q.returned = append(q.returned, task{chunk: c})
	case errors.Is(err, io.EOF):
		q.ended = true
	case ctx.Err() != nil:
		q.closed = true
	default:
		q.err = fault.JobFiles.Wrap(err)
	}
	q.broadcast()
}

// giveBack returns the remainder of a task to the queue: nothing, the task itself, or
// several tasks.
func (q *queue) giveBack(tasks ...task) { q.put(1, tasks...) }

// put queues tasks that a worker had, of which it has ended this number; none if the first part
// of a task is still being computed.
func (q *queue) put(ended int, tasks ...task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= ended
	for _, t := range tasks {
		t.returned = true
		q.returned = append(q.returned, t)
	}
	q.broadcast()
}

// close stops handing out tasks.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.broadcast()
	q.mu.Unlock()
}

// broadcast wakes all waiting slots after a change.
func (q *queue) broadcast() {
	q.changed.Broadcast()
	if q.closed || q.err != nil || q.isFinished() {
		select {
		case <-q.done:
		default:
			close(q.done)
		}
	}
}

// until returns a context that ends with ctx or when done is closed: once no tasks remain, there
// is no need to wait for a model to load or for a stream.
func until(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// rest passes every remaining task whose result counts to each, one after the other.
func (q *queue) rest(ctx context.Context, each func(task) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		if len(q.returned) > 0 {
			t := q.returned[0]
			q.returned = q.returned[1:]
			if t.probe != nil {
				continue
			}
			q.mu.Unlock()
			err := each(t)
			if q.mu.Lock(); err != nil {
				return err
			}
			continue
		}
		if q.ended {
			return q.err
		}
		if q.read(ctx); q.err != nil {
			return q.err
		}
	}
	return q.err
}

// unfinished reports whether work remains that no slot will do.
func (q *queue) unfinished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.isFinished()
}

// isFinished reports whether no task is left or may come back. The caller must hold q.mu.
func (q *queue) isFinished() bool { return q.ended && q.held == 0 && len(q.returned) == 0 }
