package worker

import (
	"bytes"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// encoder makes output lines of verdicts. It checks everything that is the
// kernel's own; what comes back as it went in was checked before.
type encoder struct {
	keep     *jsonline.Wanted // nil: all members are kept
	nanFails bool             // --nan error
	// reprocess: records that came in with a mark are computed, too.
	reprocess bool
	nulls     int64 // numbers that became null, since JSON does not have them
	keepSet   map[string]bool
	buffer    []byte
	projects  []byte // scratch for --keep
	info      jsonline.Info

	// The columns of the last results, ready for splicing.
	results *plugins.Results
	columns []plugins.Column
	wanted  *jsonline.Wanted
	names   []string
	members []jsonline.Member
	seen    *columnNames // hears of their names
}

func newEncoder(options wire.Records, seen *columnNames) *encoder {
	e := &encoder{nanFails: options.NaNFails, reprocess: options.Reprocess, seen: seen}
	if len(options.Keep) > 0 {
		e.keep = jsonline.Want(options.Keep...)
		e.keepSet = make(map[string]bool, len(options.Keep))
		for _, name := range options.Keep {
			e.keepSet[name] = true
		}
	}
	return e
}

// source is a record that the kernel saw, the i-th of its batch.
type source struct {
	record []byte
	i      int
	places *places // nil: not looked for
}

// encode returns the lines that the record became by result i of results, each with
// its newline; they are valid until the next call. A fault means that the kernel's
// answer cannot be used for this record.
func (e *encoder) encode(from source, results *plugins.Results, i int) ([]byte, *fault.Error) {
	e.buffer = e.buffer[:0]
	if refusal := e.append(from, results, i); refusal != nil {
		return nil, refusal
	}
	return e.buffer, nil
}

// append appends the record's lines to the buffer; with a fault, nothing.
func (e *encoder) append(from source, results *plugins.Results, i int) *fault.Error {
	start := len(e.buffer)
	old := e.takeMark(&from)
	record := from.record
	var refusal *fault.Error
	switch result := results.At(i); result.Verdict {
	case plugins.Lines:
		for _, line := range result.Lines {
			if refusal = e.line(record, line, old); refusal != nil {
				break
			}
		}
	case plugins.Columns:
		refusal = e.splice(from, results, i)
	default:
		e.unchanged(record)
	}
	if refusal != nil {
		e.buffer = e.buffer[:start]
	}
	return refusal
}

// takeMark takes the mark off a record that came in with one and was computed all the
// same, and returns it: it says nothing of this job.
func (e *encoder) takeMark(from *source) (mark []byte) {
	if !e.reprocess || !bytes.Contains(from.record, markText) {
		return nil
	}
	if mark = plugins.Reported(from.record); mark != nil {
		from.record, from.places = unmarked(from.record), nil
	}
	return mark
}

// unmarked is a line without its mark.
func unmarked(line []byte) []byte {
	var info jsonline.Info
	for markMember.Scan(line, &info) == nil && info.Object && info.Spans[0].Present() { // a key may be there twice
		line = jsonline.Without(nil, line, info.Spans[0])
	}
	return line
}

// markMember finds the mark in a line, and nothing else.
var markMember = jsonline.Want(chunk.ErrorMember)

func (e *encoder) unchanged(record []byte) {
	if e.keep != nil && e.keep.Scan(record, &e.info) == nil && e.info.Object {
		e.buffer = jsonline.Keep(e.buffer, record, &e.info)
	} else {
		e.buffer = append(e.buffer, record...)
	}
	e.buffer = append(e.buffer, '\n')
}

// line appends a line that the kernel made of the record, which had an old mark.
func (e *encoder) line(record, line, old []byte) *fault.Error {
	if bytes.Equal(line, record) {
		e.unchanged(record)
		return nil
	}
	if err := markMember.Scan(line, &e.info); err != nil {
		return fault.New(fault.Record, "kernel returned invalid JSON: %w", err)
	}
	if at := e.info.Spans[0]; e.info.Object && isMark(line, at) {
		value := line[at.ValueStart:at.ValueEnd]
		if !bytes.Equal(value, old) {
			return fault.New(fault.Record, "%s", plugins.ReportedMessage(value))
		}
		return e.line(record, unmarked(line), nil) // the kernel has left it there
	}
	if bytes.IndexByte(line, '\n') >= 0 {
		return fault.New(fault.Record, "kernel returned one line with a line break in it")
	}
	if e.keep != nil && e.info.Object {
		e.kernelMembers(record, line)
	} else {
		e.buffer = append(e.buffer, line...)
	}
	e.buffer = append(e.buffer, '\n')
	return nil
}

// kernelMembers appends, of a whole record that the kernel returned, the members
// that are kept and those that are the kernel's: not in the input, or changed.
func (e *encoder) kernelMembers(record, line []byte) {
	input := make(map[string][]byte)
	jsonline.Members(record, func(_ []byte, name string, value []byte) bool {
		input[name] = value
		return true
	})
	e.buffer = append(e.buffer, '{')
	first := true
	jsonline.Members(line, func(key []byte, name string, value []byte) bool {
		old, was := input[name]
		if was && bytes.Equal(old, value) && !e.keepSet[name] {
			return true
		}
		if !first {
			e.buffer = append(e.buffer, ',')
		}
		first = false
		e.buffer = append(append(append(e.buffer, key...), ':'), value...)
		return true
	})
	e.buffer = append(e.buffer, '}')
}

// splice appends the record with the values of the columns in it.
func (e *encoder) splice(from source, results *plugins.Results, i int) *fault.Error {
	e.prepare(results)
	for c := range e.columns {
		value := e.columns[c].AppendValue(e.members[c].Value[:0], i)
		e.members[c].Value = value
		if nulls := e.columns[c].NonFinite(i); nulls > 0 && e.nanFails {
			return fault.New(fault.Record, "kernel returned NaN or infinity in column %q", e.columns[c].Name)
		} else if nulls > 0 {
			e.nulls += int64(nulls)
		}
		if !e.columns[c].Trusted() && (!jsonline.Valid(value) || bytes.IndexByte(value, '\n') >= 0) {
			return fault.New(fault.Record, "kernel returned invalid JSON in column %q", e.columns[c].Name)
		}
		if e.columns[c].Name == chunk.ErrorMember && string(value) != "null" {
			return fault.New(fault.Record, "%s", plugins.ReportedMessage(value))
		}
	}
	record, place := from.record, from.places.of(from.i, e.names)
	if e.keep != nil {
		if e.keep.Scan(record, &e.info) == nil && e.info.Object {
			e.projects = jsonline.Keep(e.projects[:0], record, &e.info)
			record, place = e.projects, nil
		}
	}
	if place == nil {
		place = &e.info
		_ = e.wanted.Scan(record, place) // what is no JSON is no object either
	}
	if !place.Object {
		return fault.New(fault.Record, "the record is no JSON object: the kernel's column %q has no place in it", e.columns[0].Name)
	}
	e.buffer = append(jsonline.Splice(e.buffer, record, place, e.members), '\n')
	return nil
}

// prepare compiles the columns' names, once for all records of a batch.
func (e *encoder) prepare(results *plugins.Results) {
	if e.results == results {
		return
	}
	e.results = results
	columns := results.ColumnList()
	if sameNames(e.columns, columns) {
		e.columns = columns
		return
	}
	e.columns = columns
	e.names = make([]string, len(columns))
	e.members = make([]jsonline.Member, len(columns))
	for i, c := range columns {
		e.names[i] = c.Name
		e.members[i].Name = c.Name
	}
	e.wanted = jsonline.Want(e.names...)
	e.seen.note(e.names)
}

func sameNames(a, b []plugins.Column) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name {
			return false
		}
	}
	return true
}
