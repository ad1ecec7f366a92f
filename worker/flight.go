package worker

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// flight is a record that was or will be sent to a concurrent kernel.
type flight struct {
	number int64
	record plugins.Record
	group  *group // what the record belongs to
	at     int    // its position there

	bound     bool // its files are fetched, so it is sent even if its lane ends
	fileBytes int  // of its files, as its group counts them
	started   time.Time
	round     int       // of the window, in which it was sent
	retries   int       // attempts that the kernel asked for
	due       time.Time // when the next one may begin

	suspect bool
	trusted bool // as a suspect, it was taken to be slow
	crashes int  // how often the process was lost with it
	alone   int  // how often it was then the only one
}

// mayBegin reports whether the record may be sent for the first time.
func (f *flight) mayBegin() bool {
	l := f.group.lane
	return !l.halted && (f.bound || !l.ended)
}

// roster knows where the records are that have been read and have no verdict.
type roster struct {
	flying   map[int64]*flight // at the kernel, by number
	again    []*flight         // to be sent again, before any new record, by number
	fresh    []*flight         // never sent, with their files if they have some, by number
	waiting  []*flight         // for another attempt, the first due first
	fetching map[int64]*flight // that wait for their files, by number
}

func newRoster() roster {
	return roster{flying: make(map[int64]*flight), fetching: make(map[int64]*flight)}
}

// send moves a record to the kernel.
func (r *roster) send(f *flight) {
	r.again, r.fresh = remove(r.again, f), remove(r.fresh, f)
	r.flying[f.number] = f
}

// flies reports whether a record is at the kernel. It is not if it was abandoned.
func (r *roster) flies(f *flight) bool { return r.flying[f.number] == f }

// resend queues a record that was sent before.
func (r *roster) resend(f *flight) { r.again = insert(r.again, f) }

// retryAt lets a record wait.
func (r *roster) retryAt(f *flight, due time.Time) {
	f.due = due
	at, _ := slices.BinarySearchFunc(r.waiting, due, func(other *flight, due time.Time) int { return other.due.Compare(due) })
	r.waiting = slices.Insert(r.waiting, at, f)
}

// resendDue queues the records whose wait is over.
func (r *roster) resendDue(now time.Time) {
	for len(r.waiting) > 0 && !r.waiting[0].due.After(now) {
		r.resend(r.waiting[0])
		r.waiting = r.waiting[1:]
	}
}

// next returns the next record to send, or nil if there is none: one that was sent before, or else
// a new one if fresh. While the server refuses everything, that is the one with the most attempts
// left, so that no record uses up its attempts for all others.
func (r *roster) next(refuses, fresh bool) (next *flight) {
	for _, f := range r.again {
		if f.group.lane.halted || next != nil && f.retries >= next.retries {
			continue
		}
		if next = f; !refuses {
			break
		}
	}
	if next == nil && fresh {
		next = first(r.fresh, (*flight).mayBegin)
	}
	return next
}

// unsent returns the first record of a lane that was never sent and need not be, or nil.
func (r *roster) unsent(l *lane) *flight {
	return first(r.fresh, func(f *flight) bool { return f.group.lane == l && !f.bound })
}

// tried reports whether records are at the kernel, or will be sent again.
func (r *roster) tried() bool { return len(r.flying)+len(r.again)+len(r.waiting) > 0 }

// suspects returns whether suspects are at the kernel, and the next one to send, or nil.
func (r *roster) suspects() (flying bool, next *flight) {
	for _, f := range r.flying {
		flying = flying || f.suspect
	}
	return flying, first(r.again, func(f *flight) bool { return f.suspect && !f.group.lane.halted })
}

// atKernel reports whether the kernel has records of a lane, pending whether others of them will
// be sent.
func (r *roster) atKernel(l *lane) bool { return contains(maps.Values(r.flying), l) }

func (r *roster) pending(l *lane) bool {
	bound := func(f *flight) bool { return f.group.lane == l && f.bound }
	return contains(maps.Values(r.fetching), l) || contains(slices.Values(r.again), l) || contains(slices.Values(r.waiting), l) || slices.ContainsFunc(r.fresh, bound)
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
	r.again, r.waiting, r.fresh = slices.DeleteFunc(r.again, ofLane), slices.DeleteFunc(r.waiting, ofLane), slices.DeleteFunc(r.fresh, ofLane)
	maps.DeleteFunc(r.fetching, func(_ int64, f *flight) bool { return ofLane(f) })
}

func first(list []*flight, is func(*flight) bool) *flight {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// find returns where a record is, or would be, in a list that is sorted by number.
func find(list []*flight, f *flight) (at int, found bool) {
	return slices.BinarySearchFunc(list, f.number, func(other *flight, number int64) int { return int(other.number - number) })
}

func insert(list []*flight, f *flight) []*flight {
	at, _ := find(list, f)
	return slices.Insert(list, at, f)
}

func remove(list []*flight, f *flight) []*flight {
	if at, found := find(list, f); found {
		return slices.Delete(list, at, at+1)
	}
	return list
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
	return failure != nil && (failure.Kind == fault.Crash || failure.Sign == fault.HostMemory) || errors.Is(l.answer.Err, process.ErrUnresponsive)
}

// failure returns why the record failed, or nil.
func (l *landing) failure() *fault.Error {
	switch {
	case l.answer.Verdict != plugins.Failed:
		return nil
	case errors.Is(l.answer.Err, process.ErrUnresponsive):
		return unresponsive(l.limit)
	case l.answer.Err != nil:
		return fault.As(fault.KernelException.Wrap(l.answer.Err)).Bounded()
	}
	e := fault.Error{Kind: fault.Record, Code: fault.Rejected, Message: l.answer.Message, Detail: l.answer.Detail}
	return e.Bounded()
}
