package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/process"
)

// suspicion is the search for the record that ends the process of a concurrent kernel. All records
// that were at the kernel are suspects. They are sent again, and nothing else is, with half as
// many in flight each time the process is lost: in the end the record is alone. Answered
// records are never sent again.
//
// A suspect that is merely slow must not hold up the others: see outlived.
type suspicion struct {
	limit   int           // records in flight meanwhile; 0: there is no search
	usual   time.Duration // how long an answer took lately, on average; 0 before the first
	heard   time.Time     // when the kernel last answered
	outside int           // records in a row that were blamed for a signal from outside
	deaths  int           // records in a row that killed a kernel which has never computed anything
}

const (
	// A suspect that takes longer than this, and than patientTimes what answers usually take,
	// is probably slow.
	suspectPatience = time.Second
	patientTimes    = 4
	// usualShare is the share of one answer in the time that answers usually take.
	usualShare = 16
	// sampledDeaths records must kill a kernel that has never computed anything before that
	// counts as a sample of all: each costs several starts.
	sampledDeaths = 3
	// heardWithin is how long after a record should have been given up an answer must arrive to
	// show that the kernel still works. Before that, it may have been on its way.
	heardWithin = time.Second
)

// good takes note of a record that succeeded.
func (s *suspicion) good(took time.Duration) {
	s.outside, s.deaths = 0, 0
	s.usual += (took - s.usual) / usualShare
}

// next returns the next suspect to send, or nil. While the search lasts, nothing else may be sent.
func (s *suspicion) next(r *roster, now time.Time) (f *flight, lasts bool) {
	if s.limit == 0 {
		return nil, false
	}
	flying, f := r.suspects()
	switch {
	case flying && s.outlived(r.flying, now):
	case f != nil || flying:
		return f, true
	}
	s.limit = 0
	return nil, false
}

// outlived reports whether the suspects at the kernel have been there for so long that they
// are probably slow, and not what ends the process: the search is over, and others may join
// them. That is assumed of a record once. If the process is lost with it again, the others
// wait until it is answered or has ended the process alone.
func (s *suspicion) outlived(flying map[int64]*flight, now time.Time) bool {
	if s.usual == 0 {
		return false
	}
	patience := max(suspectPatience, patientTimes*s.usual)
	for _, f := range flying {
		if f.suspect && (f.trusted || now.Sub(f.started) < patience) {
			return false
		}
	}
	for _, f := range flying {
		f.trusted = f.trusted || f.suspect
		f.suspect = false
	}
	return true
}

// blames reports whether a record alone is the reason to end the process: the kernel did not
// give it up, and answered others meanwhile. A kernel that answers nothing may hang because
// of any record.
func (s *suspicion) blames(l landing) bool {
	return errors.Is(l.answer.Err, process.ErrUnresponsive) && s.heard.After(l.flight.started.Add(l.limit+heardWithin))
}

// begin starts or continues the search after the process was lost with several suspects.
// computed: the kernel has computed records before. One that has not probably fails on everything,
// which is found out soonest with records alone.
func (s *suspicion) begin(suspects int, computed bool) {
	s.limit = max(1, suspects/2)
	if !computed {
		s.limit = 1
	}
}

// accuse decides about a record that was alone when the process was lost. Once may be a
// coincidence, and a signal from outside needs more. It returns why the record fails, nil if it is
// sent again, or an error that ends the worker.
func (s *suspicion) accuse(f *flight, failure *fault.Error, computed bool) (*fault.Error, error) {
	f.alone++
	enough := 1
	if failure.Sign == fault.Outside {
		enough = outsideTries + 1
	}
	if f.crashes < 2 || f.alone < enough {
		s.limit = 1
		return nil, nil
	}
	s.limit = 0
	if failure.Sign == fault.Outside {
		if s.outside++; s.outside > 1 {
			return nil, fault.KernelKilled.New("the kernel process is killed from outside, whatever it computes: %s", failure.Message).WithDetail(failure.Detail)
		}
	}
	if !computed {
		s.deaths++
		s.limit = 1
	}
	if failure.Sign == fault.HostMemory {
		failure = outOfMemory("out of host memory, even alone in a fresh process", failure)
	}
	return failure, nil
}

// unresponsive is the failure of a record that the kernel did not give up.
func unresponsive(limit time.Duration) *fault.Error {
	return fault.KernelTimeout.New("the kernel did not respond in time").Set("timeout").
		WithDetail(fmt.Sprintf("gpurun waited %s for this record, and the kernel did not give it up", limit))
}
