package worker

import (
	"bytes"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// proposeTable derives the layout of a table from the results of a batch: the kernel's
// columns of numbers as they are, everything else from the lines.
func (l *layouts) proposeTable(task *batchTask) (*columns.Layout, error) {
	typed := l.spec.Table.Typed(kernelColumns(task))
	e := newEncoder(l.options, chunk.Chunk{}, nil)
	e.rows = new(rowEncoder)
	e.rows.use(&columns.Layout{Columns: typed, Nulls: true})
	var sample parquet.Sample
	found := false
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
			found = true
		}
	}
	if !found {
		return nil, nil
	}
	layout, err := l.spec.Table.Layout(typed, sample)
	if err != nil {
		return nil, fault.New(fault.Usage, "%w", err)
	}
	return &layout, nil
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
