package folder

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

// ErrOutputDamaged: a check alongside the work found damage. The job is run again and
// checks first.
var ErrOutputDamaged = errors.New("the unfinished output has been damaged since an earlier run wrote it")

// outputCheck is the check of an earlier run's output.
type outputCheck struct {
	Cancel context.CancelFunc // its result is no longer needed
	done   chan struct{}
	good   int   // number of good segments, from the first on; valid when done
	whole  bool  // so is the rest of the output; valid when done
	err    error // valid when done
}

func startOutputCheck(ctx context.Context, state commit.State, options commit.Options) *outputCheck {
	ctx, cancel := context.WithCancel(ctx)
	c := &outputCheck{Cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.good, c.whole, c.err = state.CheckOutput(ctx, options)
	}()
	return c
}

// checkedOutput is the check of an output in which nothing remains to be checked.
func checkedOutput() *outputCheck {
	c := &outputCheck{Cancel: func() {}, done: make(chan struct{}), whole: true}
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
	c.Cancel()
	<-c.done
}

// checkOutput checks the output of the earlier run and truncates it to the good part.
// If that takes long, the check continues in the background as e.Check.
func (e *Earlier) checkOutput(ctx context.Context, r Resume, f *Folder) error {
	options := e.commit(f)
	good, whole, err := e.State.CheckSizes(options)
	if err != nil {
		return err
	}
	if !whole {
		if err := e.cutBack(good, options); err != nil {
			return err
		}
	}
	check := startOutputCheck(ctx, e.State, options)
	// Damage that is found later would need a stream from its start again.
	if !r.CheckAll && !r.Inputs.Streams() && !e.State.Complete && !check.finishedWithin(r.CheckWait) {
		e.Check = check
		return nil
	}
	<-check.done
	check.Cancel()
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
func (e *Earlier) commit(f *Folder) commit.Options {
	m := e.Manifest
	_, layout := m.Spec.Results.Stored(m.Layout)
	options := m.Spec.Commit(f.Path, layout)
	if e.State.Complete { // there may have been no result
		options.Layout.Settle()
	}
	return options
}

// cutBack discards everything after the first good segments.
func (e *Earlier) cutBack(good int, options commit.Options) error {
	if e.State.Complete && e.State.Named(options) {
		return fault.JobDamaged.New("the job was complete, but its output was damaged before it was renamed into place")
	}
	before := e.State.Durable.Tally.Records
	if err := e.State.CutBack(good, e.Journal); err != nil {
		return err
	}
	if lost := before - e.State.Durable.Tally.Records; lost > 0 {
		e.addNote("the unfinished output was damaged: %d of its %d records are computed again", lost, before)
	} else {
		e.addNote("the end of the unfinished output was damaged and is written again")
	}
	return nil
}

// Await returns ErrOutputDamaged when the check, which runs alongside the work, finds damage. It
// returns when the check or the job ends.
func (c *outputCheck) Await(ctx, abortCtx context.Context) error {
	select {
	case <-c.done:
		return c.Passed()
	case <-ctx.Done():
	case <-abortCtx.Done():
	}
	return nil
}

// Passed returns a fault unless the output is verified to be what earlier runs
// wrote: an unverified job must not complete.
func (c *outputCheck) Passed() error {
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
		return fault.OutputChanged.New("%w; the same command computes the damaged records again", ErrOutputDamaged)
	}
	return nil
}
