package worker

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// rowEncoder holds what an encoder needs for a layout: its columns are left out of the lines,
// and their values become rows. The layout of an output of lines has none.
type rowEncoder struct {
	layout *columns.Layout
	values []byte // the rows of the lines in the encoder's buffer
	names  *jsonline.Wanted
	quoted [][]byte // the same as they appear in lines
	scans  bool     // lines are scanned for the layout's columns
	info   jsonline.Info
	line   []byte                 // scratch
	table  *parquet.Rows          // makes rows of lines; nil if the output is not a table
	takes  func(name string) bool // whether the table has a column of this name
	row    []byte                 // scratch
	bytes  []string               // the names of the values beside lines
	beside parquet.Values         // those of the current record; nil if there are none

	// Of the last results:
	results *plugins.Results
	list    []plugins.Column
	rows    []int // the number in the layout of each column, -1 if it is text, leftOut if it is not needed
	text    *jsonline.Wanted
	members []jsonline.Member
	raw     [][]byte // the values of each column of the layout, nil if it has none, null for a null
	memory  [][]byte // for raw
}

// null is the value of a column that a result lacks.
var null = []byte{}

// leftOut stands for a column that the output does not have.
const leftOut = -2

// use prepares for rows of this layout. It is nil until a result decides it.
func (r *rowEncoder) use(layout *columns.Layout) {
	if r.layout == layout {
		return
	}
	*r = rowEncoder{layout: layout, bytes: r.bytes, beside: r.beside, values: r.values[:0], raw: make([][]byte, len(layout.Columns)), memory: make([][]byte, len(layout.Columns))}
	if layout.Table != nil {
		r.table, r.takes = layout.Table.Rows(), layout.Table.Takes
		if r.beside != nil {
			r.table.Beside(r.bytes, r.beside)
		}
	}
	var names []string
	for _, c := range layout.Columns {
		names, r.quoted = append(names, c.Name), append(r.quoted, []byte(`"`+c.Name+`"`))
	}
	r.names = jsonline.Want(names...)
	r.scans = len(names) > 0 || layout.Nulls && r.table == nil // without a schema, a table refuses what is not an object
}

// decided reports whether it is known what rows look like.
func (r *rowEncoder) decided() bool { return r.names != nil }

// takeOut turns the columns in the last line of the buffer, which starts at start, into a
// row. number is the number of the record's line in the input.
func (e *encoder) takeOut(start int, number int64) *fault.Error {
	clear(e.rows.raw)
	return e.endRow(start, number)
}

// endRow appends the row of the last line of the buffer: the values in raw, and what is
// missing there from the line, which loses all these columns.
func (e *encoder) endRow(start int, number int64) *fault.Error {
	r := &e.rows
	if e.origins != nil {
		if refusal := e.addOrigin(start, number); refusal != nil {
			return refusal
		}
	}
	line := e.buffer[start : len(e.buffer)-1]
	if r.scans && !r.complete(line) {
		var refusal *fault.Error
		if line, refusal = r.takeColumns(line); refusal != nil {
			return refusal
		}
		e.buffer = append(append(e.buffer[:start], line...), '\n')
		line = e.buffer[start : len(e.buffer)-1]
	}
	if r.table == nil {
		for k, values := range r.raw {
			if r.values = append(r.values, values...); len(values) == 0 {
				r.values = append(r.values, make([]byte, r.layout.Columns[k].Bytes())...)
			}
		}
		return nil
	}
	var err error
	if r.row, err = r.table.Append(r.row[:0], line, r.raw); err != nil {
		return r.misfit(err)
	}
	e.buffer = append(e.buffer[:start], r.row...)
	r.values = columns.AppendEntry(r.values, int64(len(r.row)), true)
	return nil
}

// misfit returns the fault of a result that does not fit. Its advice is a type that fits, if the output is a table.
func (r *rowEncoder) misfit(err error) *fault.Error {
	refusal := fault.ColumnMismatch.New("%w", err)
	if misfit, ok := errors.AsType[*parquet.Misfit](err); ok && r.table != nil {
		return refusal.Set(misfit.Name + ":" + string(misfit.Type))
	}
	return refusal
}

// complete reports whether raw has all columns and a line certainly has none, which is found out in a
// fraction of the time that a scan takes.
func (r *rowEncoder) complete(line []byte) bool {
	missing := func(values []byte) bool { return values == nil }
	occurs := func(name []byte) bool { return bytes.Contains(line, name) }
	return len(r.raw) > 0 && !slices.ContainsFunc(r.raw, missing) && bytes.HasPrefix(line, []byte("{")) && bytes.IndexByte(line, '\\') < 0 && !slices.ContainsFunc(r.quoted, occurs)
}

// takeColumns completes raw with the columns of a line, and returns the line without them.
func (r *rowEncoder) takeColumns(line []byte) (rest []byte, refusal *fault.Error) {
	if err := r.names.Scan(line, &r.info); err != nil || !r.info.Object {
		return nil, fault.ColumnMismatch.New("the result is not a JSON object: it has no columns")
	}
	for k, c := range r.layout.Columns {
		span := r.info.Spans[k]
		switch {
		case r.raw[k] != nil:
		case r.layout.Nulls && r.isNull(line, k):
			r.raw[k] = null
		case !span.Present():
			return nil, fault.ColumnMismatch.New("the result has no column %q", c.Name)
		default:
			var err error
			if r.memory[k], err = c.AppendJSON(r.memory[k][:0], line[span.ValueStart:span.ValueEnd]); err != nil {
				return nil, r.misfit(parquet.NewMisfit(c.Name, c.ListType(), line[span.ValueStart:span.ValueEnd], err))
			}
			r.raw[k] = r.memory[k]
		}
	}
	return r.without(line), nil
}

// isNull reports whether a result lacks a column of the layout. info describes its line.
func (r *rowEncoder) isNull(line []byte, k int) bool {
	if r.raw[k] != nil {
		return len(r.raw[k]) == 0
	}
	span := r.info.Spans[k]
	return !span.Present() || string(line[span.ValueStart:span.ValueEnd]) == "null"
}

// without returns a line, which info describes, without the columns of the layout. A name may
// occur twice.
func (r *rowEncoder) without(line []byte) []byte {
	for {
		found := false
		for _, span := range r.info.Spans {
			if span.Present() {
				r.line = jsonline.Without(r.line[:0:0], line, span)
				line, found = r.line, true
				break
			}
		}
		if !found || r.names.Scan(line, &r.info) != nil {
			return line
		}
	}
}

// splice appends the record with the column values spliced in, and its row.
func (e *encoder) splice(from source, results *plugins.Results, i int) *fault.Error {
	r, line := &e.rows, from.record
	e.prepare(results)
	clear(r.raw)
	text := 0
	for k := range r.list {
		column := &r.list[k]
		switch number := r.rows[k]; {
		case number == leftOut:
		case number >= 0:
			if refusal := e.rawValues(column, number, i); refusal != nil {
				return refusal
			}
		default:
			value := column.AppendValue(r.members[text].Value[:0], i)
			r.members[text].Value = value
			text++
			if refusal := e.checkValue(column, value, i); refusal != nil {
				return refusal
			}
		}
	}
	if e.keep != nil && e.keep.Scan(line, &e.info) == nil && e.info.Object {
		e.projects = jsonline.Keep(e.projects[:0], line, &e.info)
		line = e.projects
	}
	start := len(e.buffer)
	switch {
	case len(r.members) == 0:
		e.buffer = append(e.buffer, line...)
	case r.text.Scan(line, &e.info) == nil && e.info.Object:
		e.buffer = jsonline.Splice(e.buffer, line, &e.info, r.members)
	default:
		return fault.BadResult.New("the record is not a JSON object: the kernel's column %q cannot be added to it", r.members[0].Name)
	}
	e.buffer = append(e.buffer, '\n')
	return e.endRow(start, from.line)
}

// checkValue checks the JSON of a column's value.
func (e *encoder) checkValue(column *plugins.Column, value []byte, i int) *fault.Error {
	if nulls := column.NonFinite(i); nulls > 0 && e.nanFails {
		return fault.BadResult.New("kernel returned NaN or infinity in column %q", column.Name)
	} else if nulls > 0 {
		e.nulls += int64(nulls)
	}
	if !column.Trusted() && (!jsonline.Valid(value) || bytes.IndexByte(value, '\n') >= 0) {
		return fault.BadResult.New("kernel returned invalid JSON in column %q", column.Name)
	}
	if column.Name == record.ErrorMember && string(value) != "null" {
		return fault.BadResult.New("%s", plugins.ReportedMessage(value))
	}
	return nil
}

// rawValues takes a record's values of a column as they are.
func (e *encoder) rawValues(column *plugins.Column, number, i int) *fault.Error {
	r := &e.rows
	c, kind := r.layout.Columns[number], columns.Kind(column.Kind())
	if kind.Bytes() == 0 { // the kernel encoded it
		value := column.AppendValue(nil, i)
		if refusal := e.checkValue(column, value, i); refusal != nil {
			return refusal
		}
		if r.layout.Nulls && string(value) == "null" {
			r.raw[number] = null
			return nil
		}
		raw, err := c.AppendJSON(nil, value)
		if err != nil {
			return r.misfit(parquet.NewMisfit(c.Name, c.ListType(), value, err))
		}
		r.raw[number] = raw
		return nil
	}
	if e.nanFails && column.NonFinite(i) > 0 {
		return fault.BadResult.New("kernel returned NaN or infinity in column %q", column.Name)
	}
	if got := (columns.Column{Kind: kind, Width: column.Width, Dimensions: column.Shape()}); !c.Takes(got) {
		return r.misfit(&parquet.Misfit{Name: c.Name, Type: parquet.Widen(c.ListType(), got.ListType()),
			Err: fmt.Errorf("kernel returned column %q as %s, but the output has %s", c.Name, got.Shape(), c.Shape())})
	}
	if kind == c.Kind {
		r.raw[number] = column.Raw(i, i+1)
		return nil
	}
	r.memory[number] = c.AppendRaw(r.memory[number][:0], kind, column.Raw(i, i+1))
	r.raw[number] = r.memory[number]
	return nil
}

// prepare sorts the columns of results, once for all results with the same names.
func (e *encoder) prepare(results *plugins.Results) {
	r := &e.rows
	if r.results == results {
		return
	}
	list := results.ColumnList()
	known := r.results != nil && slices.EqualFunc(r.list, list, func(a, b plugins.Column) bool { return a.Name == b.Name })
	if r.results, r.list = results, list; !known {
		r.sortColumns()
	}
}

// sortColumns decides for each of the kernel's columns where its values belong.
func (r *rowEncoder) sortColumns() {
	r.rows, r.members = r.rows[:0], r.members[:0]
	var names []string
	for _, c := range r.list {
		number := r.layout.Find(c.Name)
		if number < 0 && r.table != nil && !r.takes(c.Name) {
			number = leftOut
		}
		r.rows = append(r.rows, number)
		if number == -1 {
			names = append(names, c.Name)
			r.members = append(r.members, jsonline.Member{Name: c.Name})
		}
	}
	if len(names) > 0 {
		r.text = jsonline.Want(names...)
	}
}

// describe lists names for a message.
func describe(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%q and %d more", names[:most], len(names)-most)
	}
	return fmt.Sprintf("%q", names)
}
