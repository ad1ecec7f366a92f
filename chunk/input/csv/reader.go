package csv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
)

// Reader reads the rows of a table as JSON lines.
type Reader struct {
	rows   *rowReader
	width  int      // columns of the header
	chosen []column // those that are read

	lines bytes.Buffer
	format.Blocks
}

// blockBytes is how many bytes of lines are prepared at a time.
const blockBytes = 256 << 10

// NewReader reads the header of a table. A table without a header, or with a header in
// which a name is empty or occurs twice, is an error. Errors name the line.
func NewReader(r io.Reader, separator byte, o format.Options) (*Reader, error) {
	rows := newRowReader(r, separator)
	if start, _ := rows.in.Peek(len(byteOrderMark)); string(start) == byteOrderMark {
		_, _ = rows.in.Discard(len(byteOrderMark))
	}
	err := rows.next()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file has no header")
	}
	if err != nil {
		return nil, err
	}
	names, err := rows.header()
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", rows.begin, err)
	}
	chosen, err := choose(names, o)
	if err != nil {
		return nil, &format.ColumnError{Err: err}
	}
	c := &Reader{rows: rows, width: len(names), chosen: chosen}
	c.Next = c.fill
	return c, nil
}

const byteOrderMark = "\ufeff"

// header returns the names in the current row.
func (r *rowReader) header() (names []string, err error) {
	if r.broken != "" {
		return nil, fmt.Errorf("the header has %s", r.broken)
	}
	if !utf8.Valid(r.text) {
		return nil, errors.New("the header is not valid UTF-8; convert the file first, for example with iconv")
	}
	for i, v := range r.values {
		name := string(v.unquoted())
		if name == "" {
			return nil, fmt.Errorf("column %d has no name in the header", i+1)
		}
		if before := slices.Index(names, name); before >= 0 {
			return nil, fmt.Errorf("columns %d and %d both have the name %q", before+1, i+1, name)
		}
		names = append(names, name)
	}
	return names, nil
}

// fill returns some lines, up to the end of the table or the error that ends it.
func (c *Reader) fill() (_ []byte, err error) {
	c.lines.Reset()
	for err == nil && c.lines.Len() < blockBytes {
		if err = c.rows.next(); err == nil {
			c.write()
		}
	}
	return c.lines.Bytes(), err
}

// write writes the current row as a record, or as a failed one.
func (c *Reader) write() {
	switch {
	case c.rows.broken != "":
		c.reject("%s", c.rows.broken)
	case len(c.rows.values) != c.width:
		c.reject("%s, but the header has %s", count(len(c.rows.values), "value"), count(c.width, "column"))
	case !utf8.Valid(c.rows.text):
		c.reject("not valid UTF-8")
	default:
		c.writeRecord()
	}
}

// count returns a number of things for people.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// writeRecord writes a row that has as many values as the header.
func (c *Reader) writeRecord() {
	line := c.lines.AvailableBuffer()
	if len(c.chosen) == 0 {
		line = append(line, '{')
	}
	for _, column := range c.chosen {
		line = append(line, column.prefix...)
		var ok bool
		if line, ok = column.write(line, c.rows.values[column.index].unquoted()); !ok {
			c.reject("column %q is not of type %s", column.name, column.kind)
			return
		}
	}
	c.lines.Write(append(line, '}', '\n'))
}

// reject writes the current row with the reason why it is not a record.
func (c *Reader) reject(format string, args ...any) {
	reason := fmt.Sprintf("line %d: ", c.rows.begin) + fmt.Sprintf(format, args...)
	_ = record.WriteRejected(&c.lines, c.rows.text, reason) // a buffer accepts everything
}
