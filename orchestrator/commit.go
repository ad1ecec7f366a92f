package orchestrator

import (
	"context"
	"math"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// committer writes finished segments to the journal and the output. Only its goroutine
// touches the output while the workers compute.
type committer struct {
	*prepared
	folder   *folder
	output   *commit.Output
	ledger   *ledger
	segments chan chunk.Segment

	diskChecked bool
	unread      bool // run was abandoned in a write, and the output with it
}

// commitInterval is how often the output is checkpointed when no segment arrives.
const commitInterval = time.Second

// deliver passes segments to run, which may have returned if ctx has ended.
func (c *committer) deliver(ctx context.Context, segments []chunk.Segment) {
	for _, s := range segments {
		select {
		case c.segments <- s:
			continue
		default:
		}
		select {
		case c.segments <- s:
		case <-ctx.Done():
		}
	}
}

// run commits segments as they arrive, until there are no more.
func (c *committer) run() error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case segment, ok := <-c.segments:
			if !ok { // while the workers shut down
				return c.output.Checkpoint(true)
			}
			err = c.commit(segment)
			c.warnOfDisk()
		case <-c.output.Encoded():
			err = c.output.Land()
		case <-ticker.C:
			err = c.output.Checkpoint(false)
		}
		if err != nil {
			return err
		}
	}
}

// commit commits a segment if the input it was read from is unchanged.
func (c *committer) commit(segment chunk.Segment) error {
	if err := c.checkSegment(segment); err != nil {
		return err
	}
	if err := c.noteSums(); err != nil {
		return err
	}
	err := c.output.Commit(segment)
	appended, _ := c.output.Appended()
	c.ledger.setAppended(appended)
	return err
}

// checkSegment checks the part of the input that a segment comes from, if the file looks
// modified.
func (c *committer) checkSegment(s chunk.Segment) error {
	if c.watch == nil {
		return c.input.check(s.Start.Offset, s.Next.Offset, c.notice)
	}
	if number, ok := c.located.SectionOf(s.First); ok {
		return c.watch.checkSection(number, c.notice)
	}
	return nil
}

// checkInput checks all of the input if a file looks modified.
func (c *committer) checkInput() error {
	if c.watch == nil {
		return c.input.check(0, math.MaxInt64, c.notice)
	}
	return c.watch.checkAll(c.notice)
}

// lastWrite is how long an aborted job waits for the reader of its output.
const lastWrite = time.Second

// last waits for the end of run in an aborted job. A write to a file completes; if a
// stream has no reader, run is abandoned.
func (c *committer) last(committed <-chan error) error {
	if !isStream(c.config.Output.Path) && (c.config.Output.Errors == "" || !isStream(c.config.Output.Errors)) {
		return <-committed
	}
	select {
	case err := <-committed:
		return err
	case <-time.After(lastWrite):
		c.unread = true
		return fault.New(fault.Canceled, "stopped on request while the output was not being read")
	}
}

// close completes the output, or leaves it to be resumed if err stopped the job.
func (c *committer) close(err error) error {
	switch {
	case err == nil:
		return c.output.Finish()
	case !c.unread:
		crash.Point("stopping")
		c.output.Abandon()
	}
	return err
}
