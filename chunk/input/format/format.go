// Package format is the contract of an input format: how the content of a file becomes JSON
// lines. Package decode has the table of formats, recognizes them and undoes compression.
package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gpurun/gpurun/internal/nearest"
)

// SniffBytes is how much of a file's content Match gets to see, if there is so much.
const SniffBytes = 64 << 10

// Format is one entry of the table of formats. Its decoders are functions of the bytes and
// the Options alone: a resumed job decodes a file again and compares checksums.
type Format struct {
	// Name is the value of the setting that selects the format: "csv".
	Name string
	// Endings are how the names of its files end, besides the name of the format.
	Endings []string
	// Rows: line numbers count rows, not lines of the file.
	Rows bool
	// Match recognizes the format by the first bytes of the decompressed content. If whole
	// is set, that is all of it.
	Match func(head []byte, whole bool) bool
	// Stream decodes content that is read from start to end, such as a pipe; nil if
	// the format needs random access. It refuses a wrong header, and columns that do not exist
	// (ColumnError).
	Stream func(ctx context.Context, r io.Reader, o Options) (Lines, error)
	// Columns returns what the beginning of content that is read from start to end tells about its
	// columns: all of them with their types, if the format has an Open, else those of bytes. Nil:
	// nothing.
	Columns func(r io.Reader) []Column
	// Open opens a table that can be read at any place; nil if Stream is all there is. It finds
	// damage that a quick look can find, and columns that do not exist (ColumnError).
	Open func(f File, o Options) (Table, error)
}

// Table is an open file with random access.
type Table interface {
	// Count returns the number of records.
	Count() int64
	// Columns returns the columns that are read, in order, with their types.
	Columns() []Column
	// Lines decodes the file. It may leave out some of the first records; see Options.Skip.
	Lines(ctx context.Context, skip int64) Lines
}

// Column is a column of a table.
type Column struct {
	Name string
	// Type is the type of a Parquet output that keeps what the values are, or most of it; "" if
	// the values decide.
	Type string
	// Lost is what the column is, if Type does not keep it: "interval".
	Lost string
	// Bytes: the values are bytes, which can travel beside the lines.
	Bytes bool
	// Feature is what the file says under parquet.Features, as JSON; "" for nothing.
	Feature string
}

// Member is a member that a file's place gives to all of its records, such as the name of the folder
// lang=en.
type Member struct {
	Name string
	// Type is int64 or string.
	Type string
	// Value is its JSON, Text the value in the file's place.
	Value []byte
	Text  string
}

// ColumnError reports columns to read that a file does not have: the request is wrong, and the
// file is not damaged.
type ColumnError struct{ Err error }

func (e *ColumnError) Error() string { return e.Err.Error() }
func (e *ColumnError) Unwrap() error { return e.Err }

// NoColumn is the error of a column that a table with these columns does not have.
func NoColumn(name string, columns []string) error {
	if similar := nearest.Of(name, columns, 3); similar != "" {
		return fmt.Errorf("there is no column %q; did you mean %q?", name, similar)
	}
	return fmt.Errorf("there is no column %q; the columns are %s", name, strings.Join(columns, ", "))
}

// File is an open input file that can be read at any place, concurrently.
type File interface {
	io.ReaderAt
	Size() int64
	// Name is the file's name as the user knows it.
	Name() string
}

// Options are what a job knows about the records that it wants.
type Options struct {
	// Members are the only members of a record that the job needs; nil for all. They need
	// not exist.
	Members []string
	// Columns are the columns of a table to read, in this order; nil for all. They must
	// exist. In a format without types, a column's type may follow its name: "id:int64".
	Columns []string
	// Types are columns with the types that their values have in the results, "id:int64", for
	// formats without types. They need not exist, and types that the format cannot read are
	// ignored. They have no effect with Columns.
	Types []string
	// Bytes is where the values of columns of bytes go; nil for into the lines, as base64.
	Bytes *Bytes
	// Skip is how many records at the start of the file the job does not need. A decoder
	// leaves out as many of them as it can without decoding them; see Lines.Skipped.
	Skip int64
	// Threads is how many goroutines the decoder may use, at least 1.
	Threads int
}

// Lines are the records of a file as JSON lines. Every line ends with a newline, except
// perhaps the last.
//
// Read is not called concurrently. An error other than io.EOF means that the file is
// damaged: it says what is wrong and where, and the caller adds the file's name. Close may
// be called at any time, once, and stops everything that the decoder has started.
type Lines struct {
	io.ReadCloser
	// First is the number of the first line in the file's own terms: 1 for the first row.
	First int64
	// Skipped is how many records before it were left out, at most Options.Skip.
	Skipped int64
	// Rows reports whether line numbers count rows; of a stream, this is known after the first
	// Read. Package decode sets it.
	Rows func() bool
	// Blobs returns the values of bytes of the next line, one for each name in Bytes.Beside. It is
	// called once for each line that Read has returned, in order, by any goroutine. Nil: the lines
	// have none.
	Blobs func() []Blob
}

// AlsoClosing returns the lines, which close something else after themselves.
func (l Lines) AlsoClosing(after io.Closer) Lines {
	l.ReadCloser = &closers{l.ReadCloser, after}
	return l
}

type closers struct {
	io.ReadCloser
	after io.Closer
}

func (c *closers) Close() error { return errors.Join(c.ReadCloser.Close(), c.after.Close()) }

// Blocks reads blocks of bytes, one after another, that Next returns: io.EOF after the last.
type Blocks struct {
	Next   func() ([]byte, error)
	unread []byte
	err    error
}

func (b *Blocks) Read(p []byte) (int, error) {
	for len(b.unread) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.unread, b.err = b.Next()
	}
	n := copy(p, b.unread)
	b.unread = b.unread[n:]
	return n, nil
}

// CountsRows reports whether line numbers count rows.
func (l Lines) CountsRows() bool { return l.Rows != nil && l.Rows() }
