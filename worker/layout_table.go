package worker

import (
	"bytes"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// proposeTable derives the layout of a table from the results of a batch: the kernel's
// columns of numbers as they are, everything else from the lines.
func (l *layouts) proposeTable(task *batchTask) (_ *columns.Layout, decides bool, err error) {
	typed, own, order := kernelColumns(task)
	typed = l.spec.Table.Typed(typed)
	undecided := &columns.Layout{Columns: typed, Nulls: true}
	e := newEncoder(l.options, undecided, chunk.Chunk{})
	var sample parquet.Sample
	typedInput := len(l.spec.Table.Input) > 0 // the input declares the types of its members
	for i := range task.sent {
		v := task.verdict(i)
		if !v.hasLines() {
			continue
		}
		lines, refusal := e.encode(source{record: task.records[i]}, v.results, v.index)
		if refusal != nil {
			continue
		}
		for line := range bytes.Lines(lines) {
			sample.Add(line)
			if typedInput {
				addOwn(own, task.records[i], line)
			}
			decides = true
		}
	}
	if !decides {
		return undecided, false, nil
	}
	for i := range sample.Columns {
		if c := &sample.Columns[i]; returnsBytes(task, c.Name) {
			c.Type = parquet.Bytes
		}
	}
	layout, err := l.spec.Table.Layout(typed, sample, own, order)
	if err != nil {
		return nil, false, fault.BadColumn.New("%w", err)
	}
	return &layout, true, nil
}

// kernelColumns returns the columns of numbers that the first result with columns has, and the names
// of all the kernel's columns with their order.
func kernelColumns(task *batchTask) (typed []columns.Column, own map[string]bool, order []string) {
	own = make(map[string]bool)
	for i := range task.sent {
		v := task.verdict(i)
		if !v.hasLines() || v.results.At(v.index).Verdict != plugins.Columns {
			continue
		}
		first := len(own) == 0
		for _, c := range v.results.ColumnList() {
			if kind := columns.Kind(c.Kind()); first && kind.Bytes() > 0 {
				typed = append(typed, columns.Column{Name: c.Name, Kind: kind, Width: c.Width, Dimensions: c.Shape()})
			}
			if !own[c.Name] {
				own[c.Name], order = true, append(order, c.Name)
			}
		}
	}
	return typed, own, order
}

// returnsBytes reports whether a result has a column of bytes of this name.
func returnsBytes(task *batchTask, name string) bool {
	is := func(c plugins.Column) bool { return c.Name == name && c.Kind() == plugins.KindBytes }
	for i := range task.sent {
		if v := task.verdict(i); v.hasLines() && slices.ContainsFunc(v.results.ColumnList(), is) {
			return true
		}
	}
	return false
}

// addOwn adds the members that a line does not take from its record.
func addOwn(own map[string]bool, record, line []byte) {
	input := make(map[string][]byte)
	jsonline.Members(record, func(_ []byte, name string, value []byte) bool {
		input[name] = value
		return true
	})
	jsonline.Members(line, func(_ []byte, name string, value []byte) bool {
		own[name] = own[name] || !bytes.Equal(input[name], value)
		return true
	})
}
