package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Rows makes rows from results. It is not for concurrent use.
type Rows struct {
	schema  Schema
	columns []rowColumn
	wanted  *jsonline.Wanted
	info    jsonline.Info
	beside  Values // nil if there are none
}

// Values are values of a result that are not in its line: bytes, or structs of bytes and path.
type Values interface {
	// IsNull reports whether a value is null. A struct whose members are null is not.
	IsNull(k int) bool
	// Size returns the size of the bytes or the path of a value, -1 if they are null.
	Size(k int, member string) int
	// Read reads them into dst, which has this size.
	Read(k int, member string, dst []byte) error
}

// Beside adds columns whose values are not in lines, unless a line has the member. values returns
// the values of the next row.
func (r *Rows) Beside(names []string, values Values) {
	r.beside = values
	for i := range r.columns {
		r.columns[i].beside = slices.Index(names, r.columns[i].Name)
	}
}

type rowColumn struct {
	Column
	beside   int // the number of its values beside the lines, -1 for none
	parser   *valueParser
	members  []Column // of a struct
	null     []byte
	rowBytes int // of a typed column
}

// Rows returns what makes rows of the schema.
func (s Schema) Rows() *Rows {
	r := &Rows{schema: s}
	var names []string
	for _, c := range s.All() {
		column := rowColumn{Column: c, beside: -1, parser: newValueParser(c.Type), members: c.Type.Members()}
		column.null = make([]byte, max(len(column.members), 1))
		_, size := c.Leaf()
		column.rowBytes = size * max(c.Width, 1)
		r.columns, names = append(r.columns, column), append(names, c.Name)
	}
	r.wanted = jsonline.Want(names...)
	return r
}

// Append appends the row of a result: line is its JSON, typed has the raw values of the typed
// columns, empty for null; nothing means that all are. The error of a result that does not fit depends on the line alone. A
// failed record always fits: what does not fit of it is null.
func (r *Rows) Append(dst, line []byte, typed [][]byte) ([]byte, error) {
	if err := r.wanted.Scan(line, &r.info); err != nil || !r.info.Object {
		return dst, errors.New("the result is not a JSON object: it has no columns")
	}
	start, failed, found := len(dst), r.info.Spans[len(r.columns)-1].Present(), 0
	for i := range r.columns {
		c, span := &r.columns[i], r.info.Spans[i]
		if span.Present() {
			found++
		}
		at, err := len(dst), error(nil)
		switch {
		case c.Typed:
			var raw []byte
			if len(typed) > 0 {
				raw, typed = typed[0], typed[1:]
			}
			if dst, err = c.appendTyped(dst, raw); err != nil {
				return dst[:start], err
			}
			continue
		case !span.Present() && c.beside >= 0 && !failed:
			if dst, err = r.appendBeside(dst, c); err != nil {
				return dst[:start], err
			}
			continue
		case !span.Present() || string(line[span.ValueStart:span.ValueEnd]) == "null":
			dst = append(dst, c.null...)
			continue
		}
		dst, err = c.add(dst, line[span.ValueStart:span.ValueEnd])
		switch {
		case err != nil && !failed:
			return dst[:start], NewMisfit(c.Name, c.Type, line[span.ValueStart:span.ValueEnd], err)
		case err != nil:
			dst = append(dst[:at], c.null...)
		}
	}
	if r.schema.Closed && !failed && r.info.Members > found {
		return dst, r.unknown(line)
	}
	return dst, nil
}

// add appends a value of a line that is not null.
func (c *rowColumn) add(dst, value []byte) (_ []byte, err error) {
	if c.members != nil {
		return c.addStruct(dst, value)
	}
	at := len(dst) + 1
	if dst, err = c.parser.add(append(dst, exists), value); err == nil && c.Length > 0 {
		if n := binary.LittleEndian.Uint32(dst[at:]); int(n) != c.Length {
			err = fmt.Errorf("a list of %d values, not of %d", n, c.Length)
		}
	}
	return dst, err
}

// appendBeside appends a value that is not in the line.
func (r *Rows) appendBeside(dst []byte, c *rowColumn) ([]byte, error) {
	if r.beside.IsNull(c.beside) {
		return append(dst, c.null...), nil
	}
	if c.members == nil {
		return r.memberBeside(dst, c, Column{Name: BytesMember, Type: c.Type}, exists)
	}
	for _, m := range c.members {
		var err error
		if dst, err = r.memberBeside(dst, c, m, memberExists); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// memberBeside appends the bytes or the path of a value. level is the byte before it.
func (r *Rows) memberBeside(dst []byte, c *rowColumn, member Column, level byte) ([]byte, error) {
	size := r.beside.Size(c.beside, member.Name)
	if size < 0 {
		return append(dst, level-1), nil
	}
	of, _ := member.Type.traits()
	dst = append(dst, level)
	switch {
	case of.kind == Bytes || member.Name == PathMember:
		dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	case of.kind == fixed:
		if size != int(of.length) {
			return dst, fmt.Errorf("column %q: a value of %d bytes, not of %d", c.Name, size, of.length)
		}
	default:
		return dst, fmt.Errorf("column %q: the input has bytes, which are not %s %s", c.Name, article(c.Type), c.Type)
	}
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	err := r.beside.Read(c.beside, member.Name, dst[at:])
	if err == nil && member.Name == PathMember && !utf8.Valid(dst[at:]) {
		err = fmt.Errorf("column %q: its path is not valid UTF-8", c.Name)
	}
	return dst, err
}

// unknown returns an error if a line has a member that is not a column.
func (r *Rows) unknown(line []byte) (err error) {
	jsonline.Members(line, func(_ []byte, name string, _ []byte) bool {
		if !slices.ContainsFunc(r.columns, func(c rowColumn) bool { return c.Name == name }) {
			err = fmt.Errorf("%q is not a column of the output: the first results, which decide its columns, lack it; return it for every record, null where it has no value", name)
		}
		return err == nil
	})
	return err
}

// appendTyped appends the values of a typed column.
func (c *rowColumn) appendTyped(dst, raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return append(dst, 0), nil
	}
	if len(raw) != c.rowBytes {
		return dst, fmt.Errorf("column %q has %d bytes, not %d", c.Name, len(raw), c.rowBytes)
	}
	return appendLists(append(dst, 1), raw, c.Shape()), nil
}

// appendLists appends values as lists with the given dimensions.
func appendLists(dst, raw []byte, dimensions []int) []byte {
	if len(dimensions) == 0 {
		return append(dst, raw...)
	}
	n := dimensions[0]
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	if len(dimensions) == 1 {
		return append(dst, raw...)
	}
	for part := range slices.Chunk(raw, len(raw)/n) {
		dst = appendLists(dst, part, dimensions[1:])
	}
	return dst
}
