package worker

import (
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// parallelValues is the number of values in lines from which several goroutines pay off: below
	// it they cost more than they save. For columns they always do.
	parallelValues = 32 << 10
	maxEncoders    = 8
)

// encoders produce the lines of a batch. Formatting the numbers of wide columns is the one
// step in a worker that can take longer than computing them, so several goroutines share
// it.
type encoders struct {
	all     []*encoder
	ready   []encoded // of the current batch, in order; empty: encoded one by one
	layouts *layouts
	batch   bool   // lines become those of a batch file
	line    []byte // scratch for batchLine
}

// encoded holds the lines for a range of the records sent to the kernel.
type encoded struct {
	first   int
	text    []byte
	ends    []int // end offset in text of each record's lines
	values  []byte
	rowEnds []int // end offset in values of each record's rows
	refused map[int]*fault.Error
}

func newEncoders(l *layouts, c chunk.Chunk, threads int) *encoders {
	e := &encoders{layouts: l, batch: l.options.Batch, all: make([]*encoder, min(max(threads, 1), maxEncoders))}
	for i := range e.all {
		e.all[i] = newEncoder(l.options, nil, c)
	}
	return e
}

// begin encodes the batch in parallel if that pays off.
func (e *encoders) begin(task *batchTask) error {
	e.ready = e.ready[:0]
	layout, err := e.layouts.of(task)
	if err != nil {
		return err
	}
	for _, one := range e.all {
		one.rows.values = one.rows.values[:0]
		one.rows.use(layout)
	}
	n := len(task.sent)
	if n == 0 || e.layouts.spec == nil && (len(e.all) == 1 || numbers(n, task.verdict(0)) < parallelValues) {
		return nil
	}
	share := (n + len(e.all) - 1) / len(e.all)
	for first := 0; first < n; first += share {
		e.ready = append(e.ready, encoded{first: first})
	}
	var group sync.WaitGroup
	for k := range e.ready {
		group.Go(func() { e.all[k].encodeRange(task, &e.ready[k], min(share, n-e.ready[k].first)) })
	}
	group.Wait()
	return nil
}

// close closes the files of values beside the lines.
func (e *encoders) close() {
	for _, one := range e.all {
		_ = one.blobs.Close()
	}
}

// nulls returns how many numbers have become null.
func (e *encoders) nulls() int64 {
	n := int64(0)
	for _, one := range e.all {
		n += one.nulls
	}
	return n
}

// numbers returns about how many numbers of a batch are formatted: every call of a kernel
// usually returns the same columns.
func numbers(records int, of verdict) (n int) {
	if of.results != nil {
		for _, column := range of.results.ColumnList() {
			n += records * max(1, column.Width)
		}
	}
	return n
}

// encodeRange encodes count records from out.first on.
func (e *encoder) encodeRange(task *batchTask, out *encoded, count int) {
	e.buffer = e.buffer[:0]
	out.ends, out.rowEnds = make([]int, 0, count), make([]int, 0, count)
	for i := out.first; i < out.first+count; i++ {
		if v := task.verdict(i); v.hasLines() {
			in := task.batch.Records[task.sent[i]]
			from := source{task.records[i], in.Line, in.Index}
			if refusal := e.append(from, v.results, v.index); refusal != nil {
				if out.refused == nil {
					out.refused = make(map[int]*fault.Error)
				}
				out.refused[i] = refusal
			}
		}
		out.ends = append(out.ends, len(e.buffer))
		out.rowEnds = append(out.rowEnds, len(e.rows.values))
	}
	out.text, out.values = e.buffer, e.rows.values
}

// hasLines reports whether the record has lines in the output that the kernel decides.
func (v verdict) hasLines() bool {
	if v.fault != nil {
		return false
	}
	verdict := v.results.At(v.index).Verdict
	return verdict != plugins.Dropped && verdict != plugins.Failed
}

// encode returns the lines of the i-th record sent to the kernel, and the values of their
// columns. They are valid until the next call.
func (e *encoders) encode(record input.Record, i int, v verdict) (lines, values []byte, refusal *fault.Error) {
	if len(e.ready) == 0 {
		one := e.all[0]
		lines, refusal = one.encode(source{record.Data, record.Line, record.Index}, v.results, v.index)
		values = one.rows.values
	} else {
		out := &e.ready[i/len(e.ready[0].ends)]
		refusal = out.refused[i]
		lines, values = cut(out.text, out.ends, i-out.first), cut(out.values, out.rowEnds, i-out.first)
	}
	if refusal == nil && e.batch {
		lines, refusal = e.batchLine(record, lines)
	}
	return lines, values, refusal
}

// cut returns the i-th piece of data.
func cut(data []byte, ends []int, i int) []byte {
	if i == 0 {
		return data[:ends[0]]
	}
	return data[ends[i-1]:ends[i]]
}

// batchLine returns the line of a batch file for a request from what the kernel made of it.
func (e *encoders) batchLine(request input.Record, lines []byte) ([]byte, *fault.Error) {
	line, err := record.AppendBatchResult(e.line[:0], request.Index, request.Data, lines)
	if err != nil {
		return nil, fault.Rejected.New("%w", err)
	}
	e.line = line
	return line, nil
}
