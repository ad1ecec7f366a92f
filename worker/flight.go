package worker

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// flight is a record that was or will be sent to a concurrent kernel.
type flight struct {
	number int64
	record plugins.Record
	group  *group // what the record belongs to
	at     int    // its position there

	sent      bool
	fileBytes int // of its files, as its group counts them
	started   time.Time
	round     int       // of the window, in which it was sent
	retries   int       // attempts that the kernel asked for
	due       time.Time // when the next one may begin

	suspect bool
	trusted bool // as a suspect, it was taken to be slow
	crashes int  // how often the process was lost with it
	alone   int  // how often it was then the only one
}

// isNew reports whether the record was never sent.
func (f *flight) isNew() bool { return f.started.IsZero() }

// roster knows where the records are that have been read and have no verdict. A record that is in
// none of its lists was never sent.
type roster struct {
	flying   map[int64]*flight // at the kernel, by number
	queue    []*flight         // to be sent again, or for the first time with their files; by number
	waiting  []*flight         // for another attempt, the first due first
	fetching map[int64]*flight // that wait for their files, by number
}

func newRoster() roster {
	return roster{flying: make(map[int64]*flight), fetching: make(map[int64]*flight)}
}

// send moves a record to the kernel.
func (r *roster) send(f *flight) {
	r.queue = slices.DeleteFunc(r.queue, func(other *flight) bool { return other == f })
	r.flying[f.number] = f
}

// flies reports whether a record is at the kernel. It is not if it was abandoned.
func (r *roster) flies(f *flight) bool { return r.flying[f.number] == f }

// enqueue queues a record to be sent.
func (r *roster) enqueue(f *flight) {
	at, _ := slices.BinarySearchFunc(r.queue, f.number, func(other *flight, number int64) int { return int(other.number - number) })
	r.queue = slices.Insert(r.queue, at, f)
}

// retryAt lets a record wait.
func (r *roster) retryAt(f *flight, due time.Time) {
	f.due = due
	at, _ := slices.BinarySearchFunc(r.waiting, due, func(other *flight, due time.Time) int { return other.due.Compare(due) })
	r.waiting = slices.Insert(r.waiting, at, f)
}

// resendDue queues the records whose wait is over.
func (r *roster) resendDue(now time.Time) {
	for len(r.waiting) > 0 && !r.waiting[0].due.After(now) {
		r.enqueue(r.waiting[0])
		r.waiting = r.waiting[1:]
	}
}

// next returns the next record of the queue, or nil if there is none: one that was sent before, or
// else one that has its files if fresh. While the server refuses everything, that is the one with
// the most attempts left, so that no record uses up its attempts for all others.
func (r *roster) next(refuses, fresh bool) (next *flight) {
	for _, f := range r.queue {
		switch {
		case f.group.lane.halted, f.isNew() && (!fresh || next != nil):
		case next == nil, next.isNew(), refuses && f.retries < next.retries:
			next = f
		}
		if next != nil && !next.isNew() && !refuses {
			break
		}
	}
	return next
}

// tried reports whether records are at the kernel, or will be sent again.
func (r *roster) tried() bool {
	return len(r.flying)+len(r.waiting) > 0 || slices.ContainsFunc(r.queue, func(f *flight) bool { return !f.isNew() })
}

// suspects returns whether suspects are at the kernel, and the next one to send, or nil.
func (r *roster) suspects() (flying bool, next *flight) {
	for _, f := range r.flying {
		flying = flying || f.suspect
	}
	if i := slices.IndexFunc(r.queue, func(f *flight) bool { return f.suspect && !f.group.lane.halted }); i >= 0 {
		next = r.queue[i]
	}
	return flying, next
}

// atKernel reports whether the kernel has records of a lane, pending whether others of them will
// be sent.
func (r *roster) atKernel(l *lane) bool { return contains(maps.Values(r.flying), l) }

func (r *roster) pending(l *lane) bool {
	return contains(maps.Values(r.fetching), l) || contains(slices.Values(r.queue), l) || contains(slices.Values(r.waiting), l)
}

// contains reports whether a record of a lane is among others.
func contains(list iter.Seq[*flight], l *lane) bool {
	for f := range list {
		if f.group.lane == l {
			return true
		}
	}
	return false
}

// forget drops the records of a lane that wait to be sent.
func (r *roster) forget(l *lane) {
	ofLane := func(f *flight) bool { return f.group.lane == l }
	r.queue, r.waiting = slices.DeleteFunc(r.queue, ofLane), slices.DeleteFunc(r.waiting, ofLane)
	maps.DeleteFunc(r.fetching, func(_ int64, f *flight) bool { return ofLane(f) })
}

// landing is the end of a flight.
type landing struct {
	flight  *flight
	answer  plugins.Answer
	expired bool // the record reached its time limit
	limit   time.Duration
	took    time.Duration
}

// lost reports whether the record landed because the process was lost, or must be ended.
func (l *landing) lost(failure *fault.Error) bool {
	return failure != nil && (failure.Kind == fault.Crash || failure.Sign == fault.HostMemory) || errors.Is(l.answer.Err, plugins.ErrUnresponsive)
}

// failure returns why the record failed, or nil.
func (l *landing) failure() *fault.Error {
	switch {
	case l.answer.Verdict != plugins.Failed:
		return nil
	case errors.Is(l.answer.Err, plugins.ErrUnresponsive):
		return unresponsive(l.limit)
	case l.answer.Err != nil:
		return fault.As(fault.KernelException.Wrap(l.answer.Err)).Bounded()
	}
	e := fault.Error{Kind: fault.Record, Code: fault.Rejected, Message: l.answer.Message, Detail: l.answer.Detail}
	return e.Bounded()
}
