// Package queue is where the slots of a job pull their chunks: those that came back first, then
// the source. It knows which devices may compute a task, and when none is left.
package queue

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Task is a chunk with its history.
type Task struct {
	Chunk    chunk.Chunk
	Attempts int      // workers lost while computing it
	Tried    []string // devices that failed on it; others go first
	NotFor   int      // the slot, counted from 1, that gave it away to a waiting one
	Alone    bool     // a worker was lost that had prefetched it
	Returned bool     // a worker had it, or what it is a part of
	Doubted  []string // devices on which it failed with what only looks like a lost device
	Blame    bool     // its records are to blame for that
	Probe    *Probe   // what its result decides; nil for a task whose result is committed
}

// Probe makes a task compute a record of a suspicious device. Its result is not committed.
type Probe struct {
	Device string
	Fault  *fault.Error // of the record there
}

// Fresh reports whether no worker was lost with the task. A task that is not fresh is
// computed by itself, so that the next loss can be blamed on it.
func (t Task) Fresh() bool { return t.Attempts == 0 && len(t.Tried) == 0 && !t.Alone }

// Rest is a part of the task that was not computed.
func (t Task) Rest(c chunk.Chunk) Task { return Task{Chunk: c, Attempts: t.Attempts, Tried: t.Tried} }

// Queue is where slots pull their chunks: returned tasks first, then the source. It is
// done when the source has ended and no slot holds a task that could still come back.
type Queue struct {
	source chunks
	check  func(chunk.Chunk) error // the first chunk; nil once it is checked
	// Open ends when no task will be handed out any more.
	Open context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	changed  *sync.Cond
	returned []Task
	held     int
	waiting  []waiter        // slots that have nothing to do
	devices  devices         // with slots that may still take tasks
	promised int             // slots that have left and will be back
	Readers  sync.WaitGroup  // goroutines that read the source
	reading  bool            // a slot is waiting for the source
	ended    bool            // the source has no more
	err      error           // of the source
	limited  map[string]bool // devices that get only probes
	expelled map[string]bool // devices that get nothing
	closed   bool
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
func (d devices) fit(t Task, device string) bool {
	return !slices.Contains(t.Tried, device) || len(d.without(t.Tried)) == 0
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

func New(source chunks, check func(chunk.Chunk) error) *Queue {
	q := &Queue{source: source, check: check, devices: make(devices), limited: make(map[string]bool), expelled: make(map[string]bool)}
	q.Open, q.end = context.WithCancel(context.Background())
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Join adds a slot of a device; Leave removes it.
func (q *Queue) Join(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.expelled[device] {
		q.devices[device]++
	}
}

func (q *Queue) Leave(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.devices[device]--; q.devices[device] <= 0 {
		delete(q.devices, device)
	}
	q.broadcast()
}

// Retreat removes a slot of a device that was lost. promised: it will be back. The queue is
// closed if no slot is left to take tasks.
func (q *Queue) Retreat(device string, promised bool) {
	if promised {
		q.mu.Lock()
		q.promised++
		q.mu.Unlock()
	}
	q.Leave(device)
	q.Withdraw(false)
}

// Withdraw ends a promise, kept or not, and closes the queue if no slot is left to take tasks.
func (q *Queue) Withdraw(promised bool) {
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

// Continues reports whether the job continues without a slot that participates: others do, or
// will be back. A slot that was back in vain is not useful, and does not wait for those.
func (q *Queue) Continues(useful bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.devices.slots() > 1 || q.promised > 0 && useful
}

// Take returns the next task for a slot of a device. It returns false when ctx ends, none
// remains, the queue was closed, or the source failed; the error says which.
func (q *Queue) Take(ctx context.Context, device string, slot int) (Task, bool, error) {
	defer context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || q.err != nil || ctx.Err() != nil || q.expelled[device] {
			return Task{}, false, q.err
		}
		if t, ok := q.pick(func(t Task) bool { return q.suits(t, device, slot) }); ok {
			return t, true, nil
		}
		switch {
		case q.isFinished():
			return Task{}, false, nil
		case q.limited[device]:
			q.changed.Wait()
		case !q.ended && !q.reading && q.source.Ready():
			q.read(q.Open)
		case !q.ended && !q.reading:
			// A stream may never deliver anything. The slot waits with others: it may get a task that
			// another slot gives back.
			q.reading = true
			q.Readers.Go(func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.read(q.Open)
			})
		default:
			q.waiting = append(q.waiting, waiter{slot, device})
			q.changed.Wait()
			q.waiting = slices.DeleteFunc(q.waiting, func(w waiter) bool { return w.slot == slot })
		}
	}
}

// TakeAhead returns a task for a slot that has nearly finished its last one, if a task is
// available that may join that one and that no slot is waiting for.
func (q *Queue) TakeAhead(ctx context.Context, device string, slot int, mayJoin func(Task) bool) (Task, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.err != nil || len(q.waiting) > 0 || ctx.Err() != nil || q.limited[device] {
		return Task{}, false
	}
	suits := func(t Task) bool { return mayJoin(t) && q.suits(t, device, slot) }
	if !q.ended && !q.reading && !slices.ContainsFunc(q.returned, suits) && q.source.Ready() {
		q.read(q.Open)
	}
	if q.closed {
		return Task{}, false
	}
	return q.pick(suits)
}

// pick takes the first of the returned tasks that suits.
func (q *Queue) pick(suits func(Task) bool) (t Task, ok bool) {
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
func (q *Queue) suits(t Task, device string, slot int) bool {
	if q.limited[device] && t.Probe == nil {
		return false
	}
	return q.devices.fit(t, device) && (t.NotFor != slot+1 || !q.isWaitedFor(t))
}

// Untried returns the participating devices that are not among those that failed on a task.
func (q *Queue) Untried(tried []string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.devices.without(tried)
}

// AddProbe queues a probe before all other tasks, and reports whether a slot is waiting that
// may take it.
func (q *Queue) AddProbe(t Task) (wanted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.Returned = true
	q.returned = slices.Insert(q.returned, 0, t)
	q.broadcast()
	return q.isWaitedFor(t)
}

// isWaitedFor reports whether a waiting slot may take a task. The caller must hold q.mu.
func (q *Queue) isWaitedFor(t Task) bool {
	return slices.ContainsFunc(q.waiting, func(w waiter) bool { return q.devices.fit(t, w.device) })
}

// Suspend counts a task that may come back, although no slot has it: giveBack or finish ends
// that. full: its device gets only probes until unlimit.
func (q *Queue) Suspend(device string, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held++
	if full {
		q.limited[device] = true
	}
}

func (q *Queue) Unlimit(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.limited, device)
	q.broadcast()
}

// Expel removes all slots of a device for good.
func (q *Queue) Expel(device string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expelled[device] = true
	delete(q.devices, device)
	q.broadcast()
}

// Idle returns the slots that have nothing to do while others are computing. dry: the queue is
// empty, unless tasks come back.
func (q *Queue) Idle() (slots []int, dry bool) {
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
func (q *Queue) read(ctx context.Context) {
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
		q.returned = append(q.returned, Task{Chunk: c})
	case errors.Is(err, io.EOF):
		q.ended = true
	case ctx.Err() != nil:
		q.closed = true
	default:
		q.err = fault.JobFiles.Wrap(err)
	}
	q.broadcast()
}

// GiveBack returns the remainder of a task to the queue: nothing, the task itself, or
// several tasks.
func (q *Queue) GiveBack(tasks ...Task) { q.Put(1, tasks...) }

// Put queues tasks that a worker had, of which it has ended this number; none if the first part
// of a task is still being computed.
func (q *Queue) Put(ended int, tasks ...Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= ended
	for _, t := range tasks {
		t.Returned = true
		q.returned = append(q.returned, t)
	}
	q.broadcast()
}

// Close stops handing out tasks.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.broadcast()
	q.mu.Unlock()
}

// broadcast wakes all waiting slots after a change.
func (q *Queue) broadcast() {
	q.changed.Broadcast()
	if q.closed || q.err != nil || q.isFinished() {
		q.end()
	}
}

// Rest passes every remaining task whose result counts to each, one after the other.
func (q *Queue) Rest(ctx context.Context, each func(Task) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		if len(q.returned) > 0 {
			t := q.returned[0]
			q.returned = q.returned[1:]
			if t.Probe != nil {
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

// Unfinished reports whether work remains that no slot will do.
func (q *Queue) Unfinished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.isFinished()
}

// isFinished reports whether no task is left or may come back. The caller must hold q.mu.
func (q *Queue) isFinished() bool { return q.ended && q.held == 0 && len(q.returned) == 0 }
