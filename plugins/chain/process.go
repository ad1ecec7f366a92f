package chain

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/plugins"
)

// line is one line that a record of the batch has become so far.
type line struct {
	record int // index in the batch
	data   []byte
}

// run is one batch in the pipeline.
type run struct {
	ctx      context.Context
	batch    plugins.Batch
	results  *plugins.Results
	finish   func(error)
	nanFails bool

	lines  []line
	failed []bool
	made   *plugins.Results // of the current step; nil if it has nothing to compute
	err    error            // why the remaining steps skip the batch
}

// Process puts a batch into the pipeline.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	r := &run{
		ctx: ctx, batch: batch, results: results, finish: results.Defer(), nanFails: k.nanFails,
		lines: make([]line, batch.Len()), failed: make([]bool, batch.Len()),
	}
	for i := range r.lines {
		r.lines[i] = line{i, batch.Record(i)}
	}
	k.batches <- r
	return nil
}

// startFlow starts the goroutines that pass batches from step to step. Every batch passes
// every step, so that batches stay in order; the remaining steps skip a failed one.
func (k *kernel) startFlow() {
	batches := make(chan *run)
	k.batches = batches
	for i, one := range k.steps {
		// In addition to the batches in the channel, one goroutine is submitting a batch
		// and the other is waiting for one. So the step has one batch more than it
		// computes, and never has to wait for the next.
		given := make(chan *run, one.inFlight-1)
		done := make(chan *run)
		from := batches
		k.flow.Go(func() {
			defer close(given)
			for r := range from {
				r.begin(one, i == 0)
				given <- r
			}
		})
		k.flow.Go(func() {
			defer close(done)
			for r := range given {
				r.end(one)
				done <- r
			}
		})
		batches = done
	}
	k.flow.Go(func() {
		for r := range batches {
			r.complete()
		}
	})
}

// begin submits the remaining lines of the batch to a step.
func (r *run) begin(one step, first bool) {
	r.made = nil
	if r.err != nil || len(r.lines) == 0 {
		return
	}
	batch := r.batch // includes the member locations from the worker
	if !first {
		records := make([][]byte, len(r.lines))
		for i, l := range r.lines {
			records[i] = l.data
		}
		batch = plugins.NewBatch(records).WithIsolation(r.batch.Isolation())
	}
	r.made = plugins.Submit(r.ctx, one.process, batch)
}

// end takes over the step's results.
func (r *run) end(one step) {
	if r.made == nil {
		return
	}
	results := r.made
	if err := results.Wait(r.ctx); err != nil {
		r.err = inStep(err, one.Name)
		return
	}
	r.results.AddNulls(results.Nulls())
	var next []line
	for i, l := range r.lines {
		if column, n := nonFinite(results, i); n > 0 && r.nanFails {
			r.fail(l.record, one.Name, "", fmt.Sprintf("kernel returned NaN or infinity in column %q", column))
			continue
		} else if n > 0 {
			r.results.AddNulls(int64(n)) // the worker gets only text and cannot count them
		}
		if raised := results.At(i).Raised; raised != nil {
			r.raise(l.record, inStep(raised, one.Name))
			continue
		}
		made, err := plugins.ResultLines(l.data, results, i)
		if err != nil {
			r.fail(l.record, one.Name, results.At(i).Step, err.Error())
			continue
		}
		for _, data := range made {
			next = append(next, line{l.record, data})
		}
	}
	r.lines = next
}

// nonFinite counts the NaNs and infinities in a record's results, and returns the name of
// a column that has some.
func nonFinite(results *plugins.Results, i int) (name string, n int) {
	if results.At(i).Verdict != plugins.Columns {
		return "", 0
	}
	for _, column := range results.ColumnList() {
		if nulls := column.NonFinite(i); nulls > 0 {
			name, n = column.Name, n+nulls
		}
	}
	return name, n
}

// fail rejects a record, at most once. If the step is itself a chain, it reports its own
// inner step.
func (r *run) fail(record int, name, inner, message string) {
	if r.failed[record] {
		return
	}
	r.failed[record] = true
	if inner != "" {
		name = inner
	}
	r.results.FailIn(record, name, message)
}

// raise fails a record that a step isolated, at most once.
func (r *run) raise(record int, err error) {
	if !r.failed[record] {
		r.failed[record] = true
		r.results.Raise(record, err)
	}
}

// complete returns the final lines of each record.
func (r *run) complete() {
	if r.err != nil {
		r.finish(r.err)
		return
	}
	made := make([][][]byte, r.batch.Len())
	for _, l := range r.lines {
		made[l.record] = append(made[l.record], l.data)
	}
	for i, lines := range made {
		if !r.failed[i] {
			r.results.Lines(i, lines...)
		}
	}
	r.finish(nil)
}
