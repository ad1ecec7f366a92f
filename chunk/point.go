package chunk

import (
	"cmp"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
)

// A durable point is made when so much was appended, or so long ago. They are
// variables so that tests can have many.
var (
	durableBytes    int64 = 256 << 20
	durableInterval       = 5 * time.Second
)

// Checkpoint makes a durable point if one is due, or now: the output is synced,
// then the journal says so, then the parts that are in it go, or are written over.
// Most never reach the disk.
//
// One that is due is made while more is appended. When the next is due, and this one
// is not there yet, the disk is too slow, and appending waits for it: what is in the
// output twice, as parts and as itself, stays bounded.
func (o *Output) Checkpoint(now bool) error {
	due := o.bytes >= durableBytes || time.Since(o.durableAt) >= cmp.Or(o.options.DurableEvery, durableInterval)
	if o.options.Journal == nil || o.closed || !now && (!due || o.options.NoDurable) {
		return nil
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

// point is a durable point that is being made.
type point struct {
	parts  []Segment // what was appended since the one before
	result chan error
}

// makePoint begins a durable point of what is appended.
func (o *Output) makePoint() {
	p := &point{parts: o.parts, result: make(chan error, 1)}
	o.point, o.parts, o.bytes, o.durableAt = p, nil, 0, time.Now()
	durable := o.durable()
	go func() {
		err := o.journal(Entry{Durable: durable})
		if err == nil {
			crash.Point("durable")
			for _, s := range p.parts {
				o.release(s)
			}
		}
		p.result <- err
	}()
}

// settle waits for the durable point that is being made. If it failed, its parts
// still wait for one.
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

// durable is what is appended.
func (o *Output) durable() *Durable {
	return &Durable{Next: o.next, Place: o.place, Sizes: o.sizes, Tally: o.tally.clone()}
}

// journal syncs the output, then the journal, and then says so in the journal. With
// everything before it on the disk, a line that says so proves that whatever is
// missing before it was lost later, by damage.
func (o *Output) journal(entry Entry) error {
	for i := range o.targets {
		if err := o.targets[i].sync(); err != nil {
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
