package orchestrator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// committer writes finished segments to the journal and the output. Only its goroutine
// touches the output while the workers compute.
type committer struct {
	output   *commit.Output
	segments chan chunk.Segment
	appended atomic.Pointer[chunk.Tally] // what the output contains; nil before the first commit
	total    func() int64                // number of records, -1 while unknown
	// check checks the input that a segment was read from, before it is committed.
	check func(chunk.Segment) error
	disk  diskWarning
	// giveUp limits how long an aborted job waits for the reader of its output.
	giveUp func() <-chan time.Time
	unread bool // run was abandoned in a write, and the output with it
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
			c.disk.warn(c.output, c.total())
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
	if err := c.check(segment); err != nil {
		return err
	}
	err := c.output.Commit(segment)
	appended, _ := c.output.Appended()
	c.appended.Store(&appended)
	return err
}

// last waits for the end of run in an aborted job. A write to a file completes; if a
// stream has no reader, run is abandoned.
func (c *committer) last(committed <-chan error) error {
	select {
	case err := <-committed:
		return err
	case <-c.giveUp():
		c.unread = true
		return fault.ReaderEnded.New("stopped on request while the output was not being read")
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

// diskShare: one in diskShare records must be done before the size of the output can be
// estimated.
const diskShare = 100

// diskWarning warns the user, once and early, that the output will not fit on the disk:
// better now than after nine hours.
type diskWarning struct {
	path   string // on the disk
	first  int64  // record of the output
	notice func(string)
	done   bool
}

// warn looks at the output of a job with this many records so far.
func (d *diskWarning) warn(output *commit.Output, total int64) {
	tally, next := output.Appended()
	if d.done || total <= 0 || tally.Records == 0 || tally.Records < total/diskShare {
		return
	}
	d.done = true
	var stat unix.Statfs_t
	if err := unix.Statfs(d.path, &stat); err != nil {
		return
	}
	free := float64(stat.Bavail) * float64(stat.Bsize)
	needed := float64(output.Size()) / float64(tally.Records) * float64(d.first+total-next)
	if needed > free {
		d.notice(fmt.Sprintf(
			"not enough disk space: about %s of output remains and %s is free in %s; free some space, or the job stops when the disk is full (the same command resumes it)",
			sizeText(needed), sizeText(free), d.path))
	}
}

func sizeText(bytes float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}} {
		if bytes >= unit.size {
			return fmt.Sprintf("%.1f %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f KB", bytes/1e3)
}
