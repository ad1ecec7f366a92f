package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// Work is how a process takes part in a run.
type Work struct {
	// Shard is the one to compute first; -1 for none.
	Shard int
	// NoClaim computes that one only.
	NoClaim bool
	// Stay, unless it is nil, lets the process wait for shards that others compute, ready to claim
	// those of a process that is lost, until the run is complete. If what remains has failed too
	// often, Work fails with a MissingError. Stay is called while it waits; its error ends that.
	Stay func() error
	// LostAfter is how long an attempt may show no sign of life; 0 for DefaultLostAfter.
	LostAfter time.Duration
	// Labels describe this process to people.
	Labels map[string]string
	// Compute computes a shard: it writes Attempt.Output and Attempt.Errors, and returns
	// their counts and checksums. Its context ends when the shard need not be computed any
	// more.
	Compute func(context.Context, *Attempt) (Result, error)
	// Copy reports whether this process may compute a copy of a shard that a slower process is
	// computing, when nothing else is left, and how many records of that one's output the copy
	// would take over. It is called after Compute. If it is nil, no copies are computed.
	Copy func(output string) (records int64, ok bool)
	// Notice gets lines for the user.
	Notice func(text string)
}

// Outcome is what came of the work.
type Outcome struct {
	// Computed are the shards that this process has committed.
	Computed []int
	// Complete: every shard of the run is committed.
	Complete bool
}

// errElsewhere ends an attempt that another one has overtaken.
var errElsewhere = errors.New("another attempt was faster")

// Work computes the process's own shard, then others that no process computes, until none
// is left. It returns the first error of Compute: the shard is then left to others.
func (r *Run) Work(ctx context.Context, w Work) (Outcome, error) {
	if w.Shard >= r.Manifest.Shards {
		return Outcome{}, fault.BadShardNumber.New("there is no shard %d: the run has %d, counted from 0", w.Shard, r.Manifest.Shards).Set("shard")
	}
	if w.Notice == nil {
		w.Notice = func(string) {}
	}
	worker := &worker{Work: w, run: r, watch: r.Watch(w.LostAfter)}
	err := worker.work(ctx)
	return worker.outcome, stopped(ctx, err)
}

// worker is this process's part in a run.
type worker struct {
	Work
	run     *Run
	watch   *Watch
	outcome Outcome
	rate    float64 // of this process, in records per second; 0 if unknown
}

func (w *worker) work(ctx context.Context) error {
	for {
		shards, err := w.watch.Shards(ctx)
		if err != nil {
			return err
		}
		w.outcome.Complete = len(Missing(shards)) == 0
		next := choose(shards, w.Shard, w.NoClaim)
		if next.shard < 0 && !next.wait && !w.NoClaim {
			next = w.slowest(shards)
		}
		running := slices.ContainsFunc(shards, func(s Shard) bool { return s.State == Running })
		switch {
		case next.shard >= 0:
			if err := w.attempt(ctx, shards[next.shard]); err != nil {
				return err
			}
		case next.wait || w.Stay != nil && running:
			if w.Stay != nil {
				if err := w.Stay(); err != nil {
					return err
				}
			}
			select {
			case <-time.After(beatInterval(w.watch.lostAfter) / 2):
			case <-ctx.Done():
				return ctx.Err()
			}
		case w.Stay != nil && !w.outcome.Complete:
			left := missing(shards)
			left.Failed = true
			return fault.ShardsMissing.New("%w", left)
		default:
			w.noteOwn(shards)
			return nil
		}
	}
}

// stopped returns the error of what was stopped by its context; an error with a cause of its own
// stays.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && fault.As(err) == nil {
		return fault.Interrupted.New("stopped on request")
	}
	return err
}

// noteOwn explains why a process ends although its shard is not done.
func (w *worker) noteOwn(shards []Shard) {
	if w.Shard >= 0 && shards[w.Shard].State == Running {
		s := shards[w.Shard]
		w.Notice(fmt.Sprintf("shard %d is being computed by %s (pid %d), and no other shard is free", s.Index, s.Host, s.PID))
	}
}

// choice is what to do next.
type choice struct {
	shard int  // to compute; -1 for none
	wait  bool // until it is known whether some attempt is alive
}

// choose decides what to do next: the process's own shard, else any that has no live
// attempt, those first that others have begun.
func choose(shards []Shard, own int, noClaim bool) choice {
	if own >= 0 && shards[own].Unfinished() && shards[own].State != Running {
		return choice{shard: own}
	}
	next := choice{shard: -1}
	if noClaim {
		next.wait = own >= 0 && shards[own].Unfinished()
		return next
	}
	var begun, pending []int
	for _, s := range shards {
		switch {
		case s.State == Pending:
			pending = append(pending, s.Index)
		case s.State == Lost || s.State == Stopped || s.State == Failed && s.Failures < maxFailures:
			begun = append(begun, s.Index)
		case s.State == Running && !s.seen:
			next.wait = true // it may be lost
		}
	}
	switch {
	case len(begun) > 0:
		next.shard = begun[rand.IntN(len(begun))]
	case len(pending) > 0:
		// A scheduler starts tasks in order: those that come last are claimed first. A
		// random choice among them keeps processes out of each other's way.
		late := pending[len(pending)-min(len(pending), claimWidth):]
		next.shard = late[rand.IntN(len(late))]
	}
	return next
}

const (
	// maxFailures is how often a shard may fail before processes leave it to its own task.
	maxFailures = 2
	// lostClaim is how long a process waits, at most, after another one was faster.
	lostClaim = 250 * time.Millisecond
	// claimWidth is among how many pending shards a process chooses.
	claimWidth = 16
)

// attempt claims a shard, computes and commits it. Losing a claim or a commit to another
// process is not an error.
func (w *worker) attempt(ctx context.Context, s Shard) error {
	beside := 0
	if s.State == Running {
		beside = s.current
	}
	a, err := w.run.newAttempt(s.Index, key(s.Index), beside, w.Labels)
	if err != nil {
		return err
	}
	won, err := a.claimAfter(s.Claims)
	if err != nil || !won {
		// A network file system may show an old list of claims for a while.
		time.Sleep(time.Duration(rand.Int64N(int64(lostClaim))))
		return err
	}
	crash.Point("shard-claimed")
	switch {
	case beside > 0:
		w.Notice(fmt.Sprintf("computing a copy of shard %d, which %s still computes: the first to finish wins", s.Index, s.Host))
	case s.Index != w.Shard:
		w.Notice(fmt.Sprintf("claimed shard %d, which was %s", s.Index, s.State))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := a.live(beatInterval(w.watch.lostAfter), cancel, w.Notice)
	a.committed = w.watch.results
	result, err := Result{}, error(nil)
	if a.Records > 0 { // a run may have more shards than records
		result, err = w.Compute(ctx, a)
	}
	if err == nil {
		crash.Point("shard-computed")
		won, err = a.commit(result)
	} else if errors.Is(context.Cause(ctx), errElsewhere) {
		won, err = false, nil
	}
	stop()
	switch {
	case err != nil:
		_ = a.finish(endState(err), err)
		return err
	case !won:
		w.Notice(fmt.Sprintf("shard %d was already committed by another attempt, whose results are kept", s.Index))
		a.Discard()
		return a.finish(endDuplicate, nil)
	}
	w.outcome.Computed = append(w.outcome.Computed, s.Index)
	if result.Rate > 0 { // an empty shard has none
		w.rate = result.Rate
	}
	_ = a.finish(endCommitted, nil)
	return nil
}

// endState distinguishes what the next attempt continues from what may well fail again.
func endState(err error) string {
	switch fault.KindOf(err) {
	case fault.Canceled, fault.Stopped:
		return endStopped
	}
	return endFailed
}
