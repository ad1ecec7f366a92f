package worker

import (
	"errors"
	"maps"
	"slices"
	"sync"
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

// roster knows where the records are that have been read and have no verdict. A record that is in
// none of its lists was never sent.
type roster struct {
	flying   map[int64]*flight // at the kernel, by number
	again    []*flight         // to be sent again, before any new record, by number
	waiting  []*flight         // for another attempt, the first due first
	fetching map[int64]*flight // that wait for their files, by number
	ready    []*flight         // that have their files and were never sent, by number
}

func newRoster() roster {
	return roster{flying: make(map[int64]*flight), fetching: make(map[int64]*flight)}
}

// send moves a record to the kernel.
func (r *roster) send(f *flight) {
	isThis := func(other *flight) bool { return other == f }
	r.again, r.ready = slices.DeleteFunc(r.again, isThis), slices.DeleteFunc(r.ready, isThis)
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

// next returns the next record that was sent before or has its files, or nil if there is none.
// While the server refuses everything, that is the one with the most attempts left, so that no
// record uses up its attempts for all others. fresh: records that were never sent count.
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
		next = first(r.ready, func(f *flight) bool { return !f.group.lane.halted })
	}
	return next
}

// suspects returns whether suspects are at the kernel, and the next one to send, or nil.
func (r *roster) suspects() (flying bool, next *flight) {
	for _, f := range r.flying {
		flying = flying || f.suspect
	}
	return flying, first(r.again, func(f *flight) bool { return f.suspect && !f.group.lane.halted })
}

// atKernel reports whether the kernel has records of a lane, pending whether others of them will
// be sent again.
func (r *roster) atKernel(l *lane) bool {
	for _, f := range r.flying {
		if f.group.lane == l {
			return true
		}
	}
	return false
}

func (r *roster) pending(l *lane) bool {
	ofLane := func(f *flight) bool { return f.group.lane == l }
	for _, f := range r.fetching {
		if ofLane(f) {
			return true
		}
	}
	return slices.ContainsFunc(r.again, ofLane) || slices.ContainsFunc(r.waiting, ofLane) || slices.ContainsFunc(r.ready, ofLane)
}

// forget drops the records of a lane that wait to be sent.
func (r *roster) forget(l *lane) {
	ofLane := func(f *flight) bool { return f.group.lane == l }
	r.again, r.waiting, r.ready = slices.DeleteFunc(r.again, ofLane), slices.DeleteFunc(r.waiting, ofLane), slices.DeleteFunc(r.ready, ofLane)
	maps.DeleteFunc(r.fetching, func(_ int64, f *flight) bool { return ofLane(f) })
}

func first(list []*flight, is func(*flight) bool) *flight {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// insert adds a record to a list that is sorted by number.
func insert(list []*flight, f *flight) []*flight {
	at, _ := slices.BinarySearchFunc(list, f.number, func(other *flight, number int64) int { return int(other.number - number) })
	return slices.Insert(list, at, f)
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

// landings are flights that have ended and are not taken yet.
type landings struct {
	wake chan struct{} // signals add
	mu   sync.Mutex
	list []landing

	arrived []landing // received together; those before at are taken
	at      int
}

func (l *landings) add(one landing) {
	l.mu.Lock()
	l.list = append(l.list, one)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// receive returns all that have ended and are not taken.
func (l *landings) receive() []landing {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived = append(l.arrived, l.list...)
	clear(l.list)
	l.list = l.list[:0]
	return l.arrived[l.at:]
}

// take takes the next of those that were received.
func (l *landings) take() (one landing, more bool) {
	if l.at == len(l.arrived) {
		clear(l.arrived)
		l.arrived, l.at = l.arrived[:0], 0
		return landing{}, false
	}
	l.at++
	return l.arrived[l.at-1], true
}
