package commit

import (
	"cmp"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
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
	if err := o.settle(); err != nil {
		return err
	}
	if len(o.parts) > 0 {
		o.makePoint()
	}
	if now {
		return o.settle()
	}
	return nil
}

// point is a durable point in progress.
type point struct {
	parts  []chunk.Segment // appended since the previous point
	result chan error
}

// makePoint begins a durable point for everything appended so far.
func (o *Output) makePoint() {
	p := &point{parts: o.parts, result: make(chan error, 1)}
	o.point, o.parts, o.bytes, o.durableAt = p, nil, 0, time.Now()
	durable := o.durable()
	go func() {
		err := o.journal(Entry{Durable: durable})
		if err == nil {
			crash.Point("durable")
			for _, s := range p.parts {
				removeCommitted(o.partPath(s))
			}
			if o.options.Input != nil {
				o.options.Input.Durable(durable.Next)
			}
		}
		p.result <- err
	}()
}

// settle waits for the durable point in progress. If it failed, its parts go to the next
// one.
func (o *Output) settle() error {
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

// durable describes what may become durable: what has been appended, up to the last mark if
// the output is encoded.
func (o *Output) durable() *Durable {
	if o.units != nil {
		d := o.landed.durable
		d.Tally = d.Tally.Clone()
		return &d
	}
	return o.head()
}

// head describes what has been taken.
func (o *Output) head() *Durable {
	return &Durable{Next: o.next, Place: o.place, Sizes: o.sizes, Tally: o.tally.Clone()}
}

// journal syncs the output and the journal, and then appends entry to the journal. Because
// everything before such an entry is on disk, anything missing before it is damage.
func (o *Output) journal(entry Entry) error {
	for i := range o.targets {
		if err := o.targets[i].sync(); err != nil {
			return err
		}
	}
	for i := range o.arrays {
		if err := o.arrays[i].sync(); err != nil {
			return err
		}
	}
	if o.options.Input != nil {
		if err := o.options.Input.Sync(); err != nil {
			return err
		}
	}
	if err := o.options.Journal.Sync(); err != nil {
		return err
	}
	crash.Point("synced")
	if err := o.options.Journal.Append(entry); err != nil {
		return err
	}
	return o.options.Journal.Sync()
}
