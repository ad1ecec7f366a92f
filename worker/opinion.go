package worker

import (
	"iter"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// opinion is what the first records show about the kernel: do all fail, and with the same message?
type opinion struct {
	send    func(wire.Message)
	first   judge.First
	settled bool
}

// add adds the failures of records, nil for a success, while every record fails, and reports the
// opinion if that may matter. sampled: the records that failed are a sample of all.
func (o *opinion) add(failures iter.Seq[*fault.Error], sampled bool) {
	if o.settled {
		return
	}
	before := o.first
	o.first = before.Extend(failures)
	o.first.Sampled = sampled
	o.settled = o.first.Settled()
	if o.first.Matters(before) {
		o.send(wire.Message{Search: &wire.Search{First: new(o.first)}})
	}
}

// addRefused adds the records of a batch whose files could not be fetched.
func (o *opinion) addRefused(task *batchTask) {
	failures := slices.Clone(task.refused)
	if failures = slices.DeleteFunc(failures, func(f *fault.Error) bool { return !notFetched(f) }); len(failures) > 0 {
		o.add(slices.Values(failures), false)
	}
}

func notFetched(refusal *fault.Error) bool { return refusal != nil && refusal.Kind == fault.Fetch }
