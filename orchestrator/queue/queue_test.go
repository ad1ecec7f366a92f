package queue

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
)

// listed is a source of chunks with these numbers of records.
type listed []int64

func (l *listed) Next(context.Context) (chunk.Chunk, error) {
	if len(*l) == 0 {
		return chunk.Chunk{}, io.EOF
	}
	c := chunk.Chunk{Records: (*l)[0]}
	*l = (*l)[1:]
	return c, nil
}

func (l *listed) Ready() bool { return true }

func newTestQueue(records ...int64) *Queue {
	source := listed(records)
	q := New(&source, nil)
	q.Join("A")
	q.Join("B")
	return q
}

// waiting returns the slots that have nothing to do.
func waiting(q *Queue) []int {
	slots, _ := q.Idle()
	return slots
}

// take takes a task that must be available.
func take(t *testing.T, q *Queue, device string, slot int) Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, q.Close)
	defer stop()
	Task, ok, err := q.Take(ctx, device, slot)
	if !ok || err != nil {
		t.Fatalf("slot %d got nothing: %v", slot, err)
	}
	return Task
}

// A task that a slot gave away returns to it if the waiting slots must not take it: a
// device that failed on it waits for others to try first.
func TestGivenAwayTaskReturns(t *testing.T) {
	q := newTestQueue(1)
	take(t, q, "A", 0)
	got := make(chan bool)
	go func() {
		_, ok, _ := q.Take(t.Context(), "B", 1)
		got <- ok
	}()
	for len(waiting(q)) == 0 {
		time.Sleep(time.Millisecond)
	}
	q.GiveBack(Task{Chunk: chunk.Chunk{Records: 2}, Tried: []string{"B"}, NotFor: 1})
	if given := take(t, q, "A", 0); given.Chunk.Records != 2 {
		t.Errorf("got %+v", given)
	}
	q.GiveBack()
	if <-got {
		t.Error("slot 1 got what its device had failed at")
	}
}

// A slot prefetches only fresh, available tasks that no other slot is waiting for.
func TestTakeAhead(t *testing.T) {
	ctx := t.Context()
	q := newTestQueue(1, 2)
	take(t, q, "A", 0)
	q.Put(0, Task{Chunk: chunk.Chunk{Records: 3}, Attempts: 1}, Task{Chunk: chunk.Chunk{Records: 4}, Alone: true},
		Task{Chunk: chunk.Chunk{Records: 5}, Tried: []string{"B"}})
	if ahead, ok := q.TakeAhead(ctx, "A", 0, Task.Fresh); !ok || ahead.Chunk.Records != 2 {
		t.Errorf("got %+v, %v", ahead, ok)
	}
	if ahead, ok := q.TakeAhead(ctx, "A", 0, Task.Fresh); ok {
		t.Errorf("got %+v, which is to be computed by itself", ahead)
	}
	for range 3 {
		take(t, q, "A", 0)
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _, _ = q.Take(ctx, "B", 1)
	}()
	for len(waiting(q)) == 0 {
		time.Sleep(time.Millisecond)
	}
	q.mu.Lock()
	q.returned = append(q.returned, Task{}) // the waiting slot has not been woken yet
	q.mu.Unlock()
	if ahead, ok := q.TakeAhead(ctx, "A", 0, Task.Fresh); ok {
		t.Errorf("got %+v, which another slot is waiting for", ahead)
	}
	q.Close()
	<-waits
	if ahead, ok := q.TakeAhead(ctx, "A", 0, Task.Fresh); ok {
		t.Errorf("got %+v of a closed queue", ahead)
	}
}

// trickle is a source that delivers something now and then.
type trickle struct {
	listed
	ready bool
}

func (s *trickle) Ready() bool { return s.ready }

// From a stream, a slot prefetches what has arrived and does not wait for more.
func TestTakeAheadOfStream(t *testing.T) {
	source := &trickle{listed: listed{1, 2, 3}}
	q := New(source, nil)
	q.Join("A")
	take(t, q, "A", 0)
	if ahead, ok := q.TakeAhead(t.Context(), "A", 0, Task.Fresh); ok {
		t.Errorf("got %+v, which has not come yet", ahead)
	}
	source.ready = true
	if ahead, ok := q.TakeAhead(t.Context(), "A", 0, Task.Fresh); !ok || ahead.Chunk.Records != 2 {
		t.Errorf("got %+v, %v", ahead, ok)
	}
}

// silent is a source that delivers nothing and does not end.
type silent struct{ listed }

func (*silent) Next(ctx context.Context) (chunk.Chunk, error) {
	<-ctx.Done()
	return chunk.Chunk{}, ctx.Err()
}

// No slot waits for a source once the queue is closed.
func TestCloseWhileReading(t *testing.T) {
	q := New(&silent{}, nil)
	got := make(chan error)
	go func() {
		_, ok, err := q.Take(t.Context(), "A", 0)
		if ok {
			t.Error("there was a task")
		}
		got <- err
	}()
	for reading := false; !reading; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		reading = q.reading
		q.mu.Unlock()
	}
	q.Close()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the source")
	}
}

// A queue is open while a slot has it or will be back, and no longer.
func TestQueueWaitsForPromisedSlots(t *testing.T) {
	q := newTestQueue(1)
	ended := func() bool { return q.Open.Err() != nil }
	q.Retreat("A", true)
	q.Retreat("B", false)
	if ended() {
		t.Fatal("it was closed although a slot will be back")
	}
	if q.Continues(false) || !q.Continues(true) {
		t.Error("a slot that was back in vain must not wait for others")
	}
	q.Join("A")
	q.Withdraw(true)
	if ended() {
		t.Fatal("it was closed although a slot is back")
	}
	q.Retreat("A", false)
	if !ended() {
		t.Error("it is open, but no slot is left")
	}
}
