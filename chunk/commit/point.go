package commit

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// A durable point is due after this many appended bytes or this much time. They are variables
// so that tests can lower them.
var (
	durableBytes    int64 = 256 << 20
	durableInterval       = 5 * time.Second
)

// Checkpoint makes a durable point if one is due, or at once if now is set. It syncs the
// output, records that in the journal, then removes the appended parts. Most parts
// never reach the disk.
//
// A durable point is made while more is appended. If the next one is due before it is done,
// the disk is too slow and appending waits, so that the amount of data stored twice, as
// parts and as output, stays bounded.
func (o *Output) Checkpoint(now bool) error {
	due := o.bytes >= durableBytes || time.Since(o.durableAt) >= cmp.Or(o.options.DurableEvery, durableInterval)
	if o.options.Journal == nil || o.closed || !now && (!due || o.options.NoDurable) {
		return nil
	}
	if now && o.failed == nil {
		if err := o.land(true); err != nil {
			return err
		}
	}
	if err := o.awaitPoint(); err != nil {
		return err
	}
	if len(o.parts) > 0 {
		o.makePoint()
	} else {
		o.syncParts()
	}
	if now {
		return o.awaitPoint()
	}
	return nil
}

// syncParts makes the parts of an open unit durable, after an interval in which nothing was appended
// to the output. So a crash of the machine costs no more than it does after a unit.
func (o *Output) syncParts() {
	since := &o.units.since
	parts := since.segments[since.synced:]
	if len(parts) == 0 {
		return
	}
	since.synced = len(since.segments)
	o.beginPoint(nil, func() error {
		for _, s := range parts {
			if err := syncPart(o.partPath(s)); err != nil {
				return err
			}
		}
		if err := files.SyncDir(filepath.Join(o.options.WorkDir, PartsDir)); err != nil {
			return fault.JobFiles.New("sync parts: %w", err)
		}
		return o.options.Journal.Sync()
	})
}

// syncPart syncs the files of a part.
func syncPart(path string) error {
	for _, suffix := range suffixes {
		file, err := os.Open(path + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(file.Sync(), file.Close())
		}
		if err != nil {
			return fault.JobFiles.New("sync part: %w", err)
		}
	}
	return nil
}

// point is a durable point in progress.
type point struct {
	parts  []chunk.Segment // appended since the previous point
	result chan error
}

// beginPoint begins to make parts durable.
func (o *Output) beginPoint(parts []chunk.Segment, perform func() error) {
	p := &point{parts: parts, result: make(chan error, 1)}
	o.point, o.durableAt = p, time.Now()
	go func() { p.result <- perform() }()
}

// makePoint begins a durable point for everything appended so far.
func (o *Output) makePoint() {
	parts, durable := o.parts, o.landed.durable
	o.parts, o.bytes = nil, 0
	o.beginPoint(parts, func() error {
		if err := o.journal(Entry{Durable: &durable}); err != nil {
			return err
		}
		crash.Point("durable")
		for _, s := range parts {
			removeCommitted(o.partPath(s))
		}
		o.options.Input.Durable(durable.Next)
		return nil
	})
}

// awaitPoint waits for the durable point in progress. If it failed, its parts go to the next
// one.
func (o *Output) awaitPoint() error {
	p := o.point
	if p == nil {
		return nil
	}
	o.point = nil
	err := <-p.result
	if err != nil {
		o.parts = append(p.parts, o.parts...)
	}
	return err
}

// journal syncs the output and the journal, and then appends entry to the journal. Because
// everything before such an entry is on disk, anything missing before it is damage.
func (o *Output) journal(entry Entry) error {
	for _, sync := range []func() error{o.sync, o.options.Input.Sync, o.options.Journal.Sync} {
		if err := sync(); err != nil {
			return err
		}
	}
	crash.Point("synced")
	if err := o.options.Journal.Append(entry); err != nil {
		return err
	}
	return o.options.Journal.Sync()
}

// sync makes what was appended durable.
func (o *Output) sync() error {
	for i := range o.targets {
		if err := o.targets[i].sync(); err != nil {
			return err
		}
	}
	return nil
}
