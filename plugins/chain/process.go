package chain

import (
	"context"
	"fmt"

	"github.com/gpurun/gpurun/plugins"
)

// line is what a record of the batch has become so far; a record may be several.
type line struct {
	record int // in the batch
	data   []byte
}

// run is one batch on its way through the steps.
type run struct {
	ctx      context.Context
	batch    plugins.Batch
	results  *plugins.Results
	finish   func(error)
	nanFails bool

	lines  []line
	failed []bool
	made   *plugins.Results // by the step that it is at; nil: nothing for it to do
	err    error            // why no further step sees it
}

// Process sends a batch on its way.
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

// startFlow starts what carries batches from step to step. All of them pass all steps,
// in order: one that has failed is computed no further, and still comes behind those
// before it.
func (k *kernel) startFlow() {
	batches := make(chan *run)
	k.batches = batches
	for i, one := range k.steps {
		// Beside the batches in it, one is just being given to the step, and for one it
		// is waited: the step has one more than it computes, and never waits for it.
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

// begin gives a step what is left of the batch.
func (r *run) begin(one step, first bool) {
	r.made = nil
	if r.err != nil || len(r.lines) == 0 {
		return
	}
	batch := r.batch // with what the worker has found in it
	if !first {
		records := make([][]byte, len(r.lines))
		for i, l := range r.lines {
			records[i] = l.data
		}
		batch = plugins.NewBatch(records)
	}
	r.made = plugins.Submit(r.ctx, one.process, batch)
}

// end takes what the step has made of it.
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
			r.results.AddNulls(int64(n)) // the worker will see only text
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

// nonFinite counts the numbers of a record that JSON does not have, and names a column
// with some.
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

// fail rejects a record, once. A step that is a chain itself names its own.
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

// complete gives each record what has become of it.
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
