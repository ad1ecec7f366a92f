package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
)

// patched is a verdict that only this protocol has: the record with some members
// set, which its only line holds. See runner/reply.py.
const patched plugins.Verdict = 6

// answer is the result of a batch. Areas are relative to the block.
type answer struct {
	Block fields.Area `json:"block"`
	// Refused records were not computed. The other fields describe the remaining
	// records, in order.
	Refused []refusal `json:"refused"`
	// Raised records make process raise. The batch failed as a whole with Whole, and parts of
	// it with the errors in Attempts.
	Raised   []raised  `json:"raised"`
	Whole    *failure  `json:"whole"`
	Attempts []failure `json:"attempts"`
	// Dropped records did not reach the last step of a chain.
	Dropped *fields.Area `json:"dropped"`
	// Verdicts has one byte per record; without it all records get the columns.
	Verdicts *fields.Area  `json:"verdicts"`
	Columns  []replyColumn `json:"columns"`
	// Counts has the number of lines of each record that has lines.
	Counts         *fields.Area `json:"counts"`
	LineLengths    *fields.Area `json:"line_lengths"`
	Lines          *fields.Area `json:"lines"`
	MessageLengths *fields.Area `json:"message_lengths"`
	Messages       *fields.Area `json:"messages"`
	// Nulls is the number of values in lines and encoded columns that became null.
	Nulls int64 `json:"nulls"`
}

type refusal struct {
	Step    string      `json:"step"`
	Message string      `json:"message"`
	Rows    fields.Area `json:"rows"`
}

type raised struct {
	Row int `json:"row"`
	failure
}

type replyColumn struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`
	Shape   []int        `json:"shape"` // of each record's value; empty for a scalar
	Data    fields.Area  `json:"data"`
	Lengths *fields.Area `json:"lengths"`
}

// decoder reads an answer. Python is not trusted: the decoder checks every index
// before using it, and copies what it keeps out of the shared memory.
type decoder struct {
	batch   plugins.Batch
	block   []byte
	results *plugins.Results
	rows    []int  // the records that were computed
	step    string // the last step of a chain
}

// decode fills results from an answer.
func (d *decoder) decode(memory []byte, a *answer) error {
	block, err := part(memory, &a.Block)
	if err != nil {
		return err
	}
	if a.Block[0] < uint64(len(memory)/2) {
		return errInconsistent // the first half is ours
	}
	d.block = block
	d.results.AddNulls(max(0, a.Nulls))
	if err := d.refuse(a); err != nil {
		return err
	}
	if err := d.verdicts(a); err != nil {
		return err
	}
	for _, c := range a.Columns {
		if err := d.column(c); err != nil {
			return fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	return nil
}

// part returns an area of memory, or an error if it is out of bounds.
func part(memory []byte, a *fields.Area) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	size := uint64(len(memory))
	if a[0] > size || a[1] > size-a[0] {
		return nil, fault.PythonAnswer.Of(fault.Batch, "Python's response points outside the shared memory")
	}
	return memory[a[0] : a[0]+a[1] : a[0]+a[1]], nil
}

var errInconsistent = fault.PythonAnswer.Of(fault.Batch, "Python's response is inconsistent")

// refuse decides the records that failed or were dropped before the last step.
func (d *decoder) refuse(a *answer) error {
	decided := make([]bool, d.batch.Len())
	decide := func(rows *fields.Area, verdict func(row int)) error {
		list, err := d.counts(rows)
		if err != nil {
			return err
		}
		for _, row := range list {
			if int(row) >= len(decided) || decided[row] {
				return errInconsistent
			}
			decided[row] = true
			verdict(int(row))
		}
		return nil
	}
	if err := decide(a.Dropped, d.results.Drop); err != nil {
		return err
	}
	for _, r := range a.Refused {
		if err := decide(&r.Rows, func(row int) { d.results.FailIn(row, r.Step, r.Message) }); err != nil {
			return err
		}
	}
	for _, r := range a.Raised {
		if r.Row < 0 || r.Row >= len(decided) || decided[r.Row] || a.Whole == nil {
			return errInconsistent
		}
		decided[r.Row] = true
		d.results.Raise(r.Row, plugins.WithWhole(r.err(), a.Whole.Message, d.batch.Len()))
	}
	for _, attempt := range a.Attempts {
		d.results.Attempt(attempt.err())
	}
	for i, done := range decided {
		if !done {
			d.rows = append(d.rows, i)
		}
	}
	return nil
}

// counts reads an area of 32-bit numbers.
func (d *decoder) counts(a *fields.Area) ([]uint32, error) {
	data, err := part(d.block, a)
	if err != nil || len(data)%4 != 0 {
		return nil, errInconsistent
	}
	list := make([]uint32, len(data)/4)
	_, err = binary.Decode(data, binary.LittleEndian, list)
	return list, err
}

// pieces cuts a copy of an area by its lengths.
func (d *decoder) pieces(data, lengths *fields.Area) ([][]byte, error) {
	shared, err := part(d.block, data)
	if err != nil {
		return nil, err
	}
	list, err := d.counts(lengths)
	if err != nil {
		return nil, err
	}
	return cut(bytes.Clone(shared), list)
}

func cut[T string | []byte](all T, lengths []uint32) ([]T, error) {
	pieces := make([]T, len(lengths))
	for i, length := range lengths {
		if uint64(length) > uint64(len(all)) {
			return pieces, errInconsistent
		}
		pieces[i], all = all[:length], all[length:]
	}
	if len(all) > 0 {
		return pieces, errInconsistent
	}
	return pieces, nil
}

func (d *decoder) verdicts(a *answer) error {
	if a.Verdicts == nil {
		return nil
	}
	shared, err := part(d.block, a.Verdicts)
	if err != nil || len(shared) != len(d.rows) {
		return errInconsistent
	}
	verdicts := append([]byte(nil), shared...)
	counts, err := d.counts(a.Counts)
	if err != nil {
		return err
	}
	lines, err := d.pieces(a.Lines, a.LineLengths)
	if err != nil {
		return err
	}
	messages, err := d.pieces(a.Messages, a.MessageLengths)
	if err != nil {
		return err
	}
	for i, row := range d.rows {
		switch verdict := plugins.Verdict(verdicts[i]); verdict {
		case plugins.Unchanged:
			d.results.Unchanged(row)
		case plugins.Dropped:
			d.results.Drop(row)
		case plugins.Columns:
		case plugins.Lines, patched:
			if len(counts) == 0 || counts[0] == 0 || uint64(counts[0]) > uint64(len(lines)) {
				return errInconsistent
			}
			if verdict == patched {
				d.patch(row, lines[0])
			} else {
				d.results.Lines(row, lines[:counts[0]]...)
			}
			counts, lines = counts[1:], lines[counts[0]:]
		case plugins.Failed:
			if len(messages) == 0 {
				return errInconsistent
			}
			d.results.FailIn(row, d.step, string(messages[0]))
			messages = messages[1:]
		default:
			return errInconsistent
		}
	}
	return nil
}

// patch sets the members of an encoded object in the record and leaves its other
// bytes unchanged.
func (d *decoder) patch(row int, object []byte) {
	line, ok := patchLine(d.batch.Record(row), object)
	if !ok {
		d.results.FailIn(row, d.step, notAnObject)
		return
	}
	d.results.Line(row, line)
}

// column decodes one of the kernel's columns.
func (d *decoder) column(c replyColumn) error {
	data, err := part(d.block, &c.Data)
	if err != nil || len(d.rows) == 0 {
		return err
	}
	switch c.Kind {
	case plugins.KindString, plugins.KindJSON:
		return d.texts(c, data)
	case plugins.KindBytes:
		return d.blobs(c, data)
	}
	width := 1
	for _, n := range c.Shape {
		if n < 0 || n > 0 && width > math.MaxInt32/n {
			return errInconsistent
		}
		width *= n
	}
	if width == 0 { // no type of column holds values of no elements
		d.results.Column(plugins.JSON(c.Name, slices.Repeat([][]byte{[]byte(emptyArrays(c.Shape))}, d.batch.Len())))
		return nil
	}
	size := len(data) / len(d.rows)
	if len(d.rows) < d.batch.Len() && size > 0 {
		data = bytes.Join(spread(d, slices.Collect(slices.Chunk(data, size)), make([]byte, size)), nil)
	}
	column, err := plugins.Numbers(c.Name, c.Kind, width, data)
	if err != nil || column.Rows() != d.batch.Len() {
		return errInconsistent
	}
	if len(c.Shape) == 0 {
		column.Width = 0
	}
	d.results.Column(column.Shaped(c.Shape...))
	return nil
}

// emptyArrays returns the JSON of arrays without elements.
func emptyArrays(shape []int) string {
	if shape[0] == 0 {
		return "[]"
	}
	return "[" + strings.TrimSuffix(strings.Repeat(emptyArrays(shape[1:])+",", shape[0]), ",") + "]"
}

func (d *decoder) texts(c replyColumn, data []byte) error {
	lengths, err := d.counts(c.Lengths)
	if err != nil || len(lengths) != len(d.rows) {
		return errInconsistent
	}
	if c.Kind == plugins.KindJSON {
		pieces, err := cut(bytes.Clone(data), lengths)
		d.results.Column(plugins.JSON(c.Name, spread(d, pieces, []byte("null"))))
		return err
	}
	pieces, err := cut(string(data), lengths)
	d.results.Column(plugins.Strings(c.Name, spread(d, pieces, "")))
	return err
}

// blobs decodes a column of bytes.
func (d *decoder) blobs(c replyColumn, data []byte) error {
	lengths, err := d.counts(c.Lengths)
	if err != nil || len(lengths) != len(d.rows) {
		return errInconsistent
	}
	nulls := make([]bool, len(lengths))
	for i, length := range lengths {
		if length == fields.NullLength {
			lengths[i], nulls[i] = 0, true
		}
	}
	pieces, err := cut(bytes.Clone(data), lengths)
	for i := range pieces {
		switch {
		case nulls[i]:
			pieces[i] = nil
		case pieces[i] == nil: // which would mean null
			pieces[i] = []byte{}
		}
	}
	d.results.Column(plugins.Bytes(c.Name, spread(d, pieces, nil)))
	return err
}

// spread adds filler for the records that were not computed: a column has a value
// for every record, and theirs are ignored.
func spread[T any](d *decoder, values []T, filler T) []T {
	if len(d.rows) == d.batch.Len() {
		return values
	}
	all := slices.Repeat([]T{filler}, d.batch.Len())
	for i, row := range d.rows {
		all[row] = values[i]
	}
	return all
}
