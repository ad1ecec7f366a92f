package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
)

// The output of earlier runs is read back and compared with the journal's checksums
// before the job completes. A small output is checked before the work starts, a large
// one alongside it.

// outputCheckWait is how long the work waits for the check.
const outputCheckWait = 2 * time.Second

// errOutputDamaged: a check alongside the work found damage. The job is run again and
// checks first.
var errOutputDamaged = errors.New("the unfinished output has been damaged since an earlier run wrote it")

// outputCheck is the check of an earlier run's output.
type outputCheck struct {
	cancel context.CancelFunc
	done   chan struct{}
	good   int   // number of good segments, from the first on; valid when done
	whole  bool  // so is the rest of the output; valid when done
	err    error // valid when done
}

func startOutputCheck(ctx context.Context, state commit.State, options commit.Options) *outputCheck {
	ctx, cancel := context.WithCancel(ctx)
	c := &outputCheck{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.good, c.whole, c.err = state.CheckOutput(ctx, options)
	}()
	return c
}

// checkedOutput is the check of an output in which nothing remains to be checked.
func checkedOutput() *outputCheck {
	c := &outputCheck{cancel: func() {}, done: make(chan struct{}), whole: true}
	close(c.done)
	return c
}

// finishedWithin waits up to wait for the check and reports whether it has finished.
func (c *outputCheck) finishedWithin(wait time.Duration) bool {
	if wait < 0 {
		return false
	}
	select {
	case <-c.done:
		return true
	case <-time.After(wait):
		return false
	}
}

// close ends the check.
func (c *outputCheck) close() {
	c.cancel()
	<-c.done
}

// checkOutput checks the output of the earlier run and truncates it to the good part.
// If that takes long, the check continues in the background as e.check.
func (e *earlier) checkOutput(ctx context.Context, c *order, f *folder) error {
	options := e.commit(f)
	good, whole, err := e.state.CheckSizes(options)
	if err != nil {
		return err
	}
	if !whole {
		if err := e.cutBack(good, options); err != nil {
			return err
		}
	}
	check := startOutputCheck(ctx, e.state, options)
	// Damage that is found later would need a stream from its start again.
	if !c.checkAll && !c.inputs.Streams() && !e.state.Complete && !check.finishedWithin(c.Options.checkWait) {
		e.check = check
		return nil
	}
	<-check.done
	check.cancel()
	switch {
	case ctx.Err() != nil:
		return fault.Interrupted.New("stopped before anything was started")
	case check.err != nil:
		return check.err
	case !check.whole:
		return e.cutBack(check.good, options)
	}
	return nil
}

// commit returns how the earlier run wrote its output, regardless of this one.
func (e *earlier) commit(f *folder) commit.Options {
	m := e.manifest
	_, layout := m.Spec.Results.Stored(m.Layout)
	options := m.Spec.Commit(f.path, layout)
	if e.state.Complete { // there may have been no result
		options.Layout.Settle()
	}
	return options
}

// cutBack discards everything after the first good segments.
func (e *earlier) cutBack(good int, options commit.Options) error {
	if e.state.Complete && e.state.Named(options) {
		return fault.JobDamaged.New("the job was complete, but its output was damaged before it was renamed into place")
	}
	before := e.state.Durable.Tally.Records
	if err := e.state.CutBack(good, e.journal); err != nil {
		return err
	}
	if lost := before - e.state.Durable.Tally.Records; lost > 0 {
		e.note("the unfinished output was damaged: %d of its %d records are computed again", lost, before)
	} else {
		e.note("the end of the unfinished output was damaged and is written again")
	}
	return nil
}

// await returns errOutputDamaged when the check, which runs alongside the work, finds damage. It
// returns when the check or the job ends.
func (c *outputCheck) await(ctx, abortCtx context.Context) error {
	select {
	case <-c.done:
		return c.passed()
	case <-ctx.Done():
	case <-abortCtx.Done():
	}
	return nil
}

// passed returns a fault unless the output is verified to be what earlier runs
// wrote: an unverified job must not complete.
func (c *outputCheck) passed() error {
	stopped := fault.Interrupted.New("stopped before the output of the earlier run was checked")
	select {
	case <-c.done:
	default:
		return stopped
	}
	switch {
	case errors.Is(c.err, context.Canceled):
		return stopped
	case c.err != nil:
		return c.err
	case !c.whole:
		return fault.OutputChanged.New("%w; the same command computes the damaged records again", errOutputDamaged)
	}
	return nil
}
