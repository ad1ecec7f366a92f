package worker

import (
	"bytes"

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
	typed := l.spec.Table.Typed(kernelColumns(task))
	undecided := &columns.Layout{Columns: typed, Nulls: true}
	e := newEncoder(l.options, undecided, chunk.Chunk{}, nil)
	var sample parquet.Sample
	own, order := ownColumns(task)
	for i := range task.sent {
		v := task.verdict(i)
		if !v.hasLines() {
			continue
		}
		lines, refusal := e.encode(source{record: task.records[i], i: i}, v.results, v.index)
		if refusal != nil {
			continue
		}
		for line := range bytes.Lines(lines) {
			sample.Add(line)
			l.noteOwn(own, task.records[i], line)
			decides = true
		}
	}
	if !decides {
		return undecided, false, nil
	}
	layout, err := l.spec.Table.Layout(typed, sample, own, order)
	if err != nil {
		return nil, false, fault.BadColumn.New("%w", err)
	}
	return &layout, true, nil
}

// ownColumns returns the names of the kernel's columns, and their order.
func ownColumns(task *batchTask) (own map[string]bool, order []string) {
	own = make(map[string]bool)
	for i := range task.sent {
		if v := task.verdict(i); v.hasLines() && v.results.At(v.index).Verdict == plugins.Columns {
			for _, c := range v.results.ColumnList() {
				if !own[c.Name] {
					order = append(order, c.Name)
				}
				own[c.Name] = true
			}
		}
	}
	return own, order
}

// noteOwn adds the members that a line does not take from its record, if the input declares
// their types.
func (l *layouts) noteOwn(own map[string]bool, record, line []byte) {
	if len(l.spec.Table.Input) == 0 {
		return
	}
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

// kernelColumns returns the columns of numbers that the first result with columns has.
func kernelColumns(task *batchTask) (list []columns.Column) {
	for i := range task.sent {
		v := task.verdict(i)
		if !v.hasLines() || v.results.At(v.index).Verdict != plugins.Columns {
			continue
		}
		for _, c := range v.results.ColumnList() {
			if kind := columns.Kind(c.Kind()); kind.Bytes() > 0 {
				list = append(list, columns.Column{Name: c.Name, Kind: kind, Width: c.Width, Dimensions: c.Shape()})
			}
		}
		return list
	}
	return nil
}
