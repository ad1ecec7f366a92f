package csv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/nearest"
)

// Reader reads the rows of a table as JSON lines.
type Reader struct {
	rows   *rowReader
	width  int      // columns of the header
	chosen []column // those that are read

	lines  bytes.Buffer
	unread []byte
	err    error
}

// column is a column that is read.
type column struct {
	index  int
	prefix []byte // `{"name":` or `,"name":`
}

// blockBytes is how many bytes of lines are prepared at a time.
const blockBytes = 256 << 10

// NewReader reads the header of a table. Members are the columns to read, all if there are
// none. A table without a header, or with a header in which a name is empty or occurs
// twice, is an error. Errors name the line.
func NewReader(r io.Reader, separator byte, members []string) (*Reader, error) {
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
	c := &Reader{rows: rows, width: len(names)}
	return c, c.choose(names, members)
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

// choose selects the columns to read, in the order of the members.
func (c *Reader) choose(names, members []string) error {
	if len(members) == 0 {
		members = names
	}
	for i, member := range members {
		at := slices.Index(names, member)
		if at < 0 {
			return noColumn(member, names)
		}
		prefix := []byte(",")
		if i == 0 {
			prefix[0] = '{'
		}
		c.chosen = append(c.chosen, column{index: at, prefix: append(jsonline.AppendString(prefix, member), ':')})
	}
	return nil
}

func noColumn(name string, names []string) error {
	if similar := nearest.Of(name, names, 3); similar != "" {
		return fmt.Errorf("there is no column %q; did you mean %q?", name, similar)
	}
	return fmt.Errorf("there is no column %q; the columns are %s", name, strings.Join(names, ", "))
}

// Read reads JSON lines.
func (c *Reader) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		c.fill()
	}
	if len(c.unread) == 0 {
		return 0, c.err
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// fill prepares lines, up to the end of the table or the error that ends it.
func (c *Reader) fill() {
	c.lines.Reset()
	for c.err == nil && c.lines.Len() < blockBytes {
		if c.err = c.rows.next(); c.err == nil {
			c.write()
		}
	}
	c.unread = c.lines.Bytes()
}

// write writes the current row as a record, or as a failed one.
func (c *Reader) write() {
	switch {
	case c.rows.broken != "":
		c.reject("%s", c.rows.broken)
	case len(c.rows.values) != c.width:
		c.reject("%d values, but the header has %d columns", len(c.rows.values), c.width)
	case !utf8.Valid(c.rows.text):
		c.reject("not valid UTF-8")
	default:
		line := c.lines.AvailableBuffer()
		for _, column := range c.chosen {
			line = append(line, column.prefix...)
			line = jsonline.AppendStringBytes(line, c.rows.values[column.index].unquoted())
		}
		c.lines.Write(append(line, '}', '\n'))
	}
}

// reject writes the current row as a failed record.
func (c *Reader) reject(format string, args ...any) {
	_ = record.WriteMarked(&c.lines, c.rows.text, record.Mark{ // a buffer accepts everything
		Kind:    fault.Record,
		Message: fmt.Sprintf("line %d: ", c.rows.begin) + fmt.Sprintf(format, args...),
		Line:    c.rows.begin,
	})
}
