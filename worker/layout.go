package worker

import (
	"sync"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// layouts knows what the rows of the job look like. While that is not decided, the first
// successful batch of any worker decides: each proposes a layout, and the orchestrator answers
// with that of the job.
type layouts struct {
	spec    *columns.Spec // nil: the job has no columns
	options wire.Records
	send    func(wire.Message)
	answers chan columns.Layout
	// propose derives a layout from the results of a batch. It decides if one of them fits.
	propose func(task *batchTask) (_ *columns.Layout, decides bool, err error)

	mu     sync.Mutex
	layout *columns.Layout
}

func newLayouts(setup wire.Setup, send func(wire.Message)) *layouts {
	l := &layouts{spec: setup.Records.Columns, options: setup.Records, layout: setup.Layout, send: send, answers: make(chan columns.Layout, 1)}
	switch {
	case l.spec == nil:
		l.layout = linesOnly
	case l.spec.Table != nil:
		l.propose = l.proposeTable
	default:
		l.propose = l.proposeArrays
	}
	return l
}

// linesOnly is the layout of a job without columns.
var linesOnly = new(columns.Layout)

// answer takes the orchestrator's answer.
func (l *layouts) answer(layout columns.Layout) {
	select {
	case l.answers <- layout:
	default: // it was not asked for
	}
}

// of returns the layout for a batch. If it is not decided, and no result of the batch can decide
// it, the layout is nil, or one that refuses each of them.
func (l *layouts) of(task *batchTask) (*columns.Layout, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.layout != nil {
		return l.layout, nil
	}
	proposal, decides, err := l.propose(task)
	if !decides || err != nil {
		return proposal, err
	}
	l.send(wire.Message{Layout: proposal})
	l.layout = new(<-l.answers) // if the orchestrator has exited, so does this process
	return l.layout, nil
}

// proposeArrays derives the layout of arrays from the results of a batch.
func (l *layouts) proposeArrays(task *batchTask) (_ *columns.Layout, decides bool, err error) {
	for i := range task.sent {
		v := task.verdict(i)
		if !v.hasLines() {
			continue
		}
		var layout columns.Layout
		for _, a := range l.spec.Arrays {
			c, found, err := arrayColumn(a, task.records[i], v)
			if err != nil {
				return nil, false, err
			}
			if found {
				layout.Columns = append(layout.Columns, c)
			}
		}
		if len(layout.Columns) == len(l.spec.Arrays) {
			return &layout, true, nil
		}
	}
	return nil, false, nil
}

// arrayColumn returns the column of an array as a result has it. found is false if this
// result has no usable value: then its record fails.
func arrayColumn(a columns.ArraySpec, record []byte, v verdict) (c columns.Column, found bool, err error) {
	result := v.results.At(v.index)
	switch result.Verdict {
	case plugins.Columns:
		list := v.results.ColumnList()
		var names []string
		for k := range list {
			if list[k].Name == a.Name {
				return kernelColumn(a, &list[k], v.index)
			}
			names = append(names, list[k].Name)
		}
		if c, found = memberColumn(a, record); !found {
			return c, false, fault.BadArray.New("the kernel returns no column %q for an array; its columns are %s", a.Name, describe(names))
		}
		return c, true, nil
	case plugins.Lines:
		c, found = memberColumn(a, result.Lines[0])
	default:
		c, found = memberColumn(a, record)
	}
	return c, found, nil
}

// kernelColumn returns the column of an array from a kernel's column.
func kernelColumn(a columns.ArraySpec, column *plugins.Column, i int) (c columns.Column, found bool, err error) {
	c = columns.Column{Name: a.Name, Kind: columns.Kind(column.Kind()), Width: column.Width, Dimensions: column.Shape()}
	switch {
	case column.Kind() == plugins.KindString:
		return c, false, fault.BadArray.New("the kernel returns column %q as strings, which a NumPy array of numbers cannot hold", a.Name)
	case c.Kind.Bytes() == 0:
		value := column.AppendValue(nil, i)
		if !jsonline.Valid(value) {
			return c, false, nil
		}
		if c, err = columns.Infer(a.Name, value); err != nil {
			return c, false, nil
		}
	}
	if a.Half && !c.Kind.IsFloat() {
		return c, false, fault.BadArray.New("the kernel returns column %q as %s, which an array of float16 cannot hold", a.Name, c.Shape())
	}
	return a.Store(c), true, nil
}

// memberColumn returns the column of an array from a line.
func memberColumn(a columns.ArraySpec, line []byte) (c columns.Column, found bool) {
	var info jsonline.Info
	if err := jsonline.Want(a.Name).Scan(line, &info); err != nil || !info.Object || !info.Spans[0].Present() {
		return c, false
	}
	c, err := columns.Infer(a.Name, line[info.Spans[0].ValueStart:info.Spans[0].ValueEnd])
	return a.Store(c), err == nil
}
