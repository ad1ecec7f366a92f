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
	batch    plugins.Batch
	results  *plugins.Results
	lines    []line
	failed   []bool
	nanFails bool
}

// Process computes the steps one behind the other.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	r := &run{batch: batch, results: results, failed: make([]bool, batch.Len()), nanFails: k.nanFails}
	for i := range batch.Len() {
		r.lines = append(r.lines, line{i, batch.Record(i)})
	}
	for i, one := range k.steps {
		if len(r.lines) == 0 {
			break
		}
		if err := r.step(ctx, one, i == 0); err != nil {
			return inStep(err, one.Name)
		}
	}
	r.finish()
	return nil
}

// step computes one step on what is left.
func (r *run) step(ctx context.Context, one step, first bool) error {
	batch := r.batch // with what the worker has found in it
	if !first {
		records := make([][]byte, len(r.lines))
		for i, l := range r.lines {
			records[i] = l.data
		}
		batch = plugins.NewBatch(records)
	}
	results, err := plugins.Call(ctx, one.process, batch)
	if err != nil {
		return err
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
	return nil
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

// finish gives each record what has become of it.
func (r *run) finish() {
	made := make([][][]byte, r.batch.Len())
	for _, l := range r.lines {
		made[l.record] = append(made[l.record], l.data)
	}
	for i, lines := range made {
		if !r.failed[i] {
			r.results.Lines(i, lines...)
		}
	}
}
