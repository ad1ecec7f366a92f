package amend

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/chunk/input/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	reader "github.com/gpurun/gpurun/chunk/input/parquet"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// old reads a file of the old output from its start, and sums its bytes.
type old struct {
	path string
	file *os.File
	in   *bufio.Reader // of its bytes, summed
	sum  chunk.FileSum
}

func openOld(path string) (*old, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.WriteFailed.Of(fault.Usage, "open output: %w", err)
	}
	o := &old{path: path, file: file}
	o.in = bufio.NewReaderSize(io.TeeReader(file, &o.sum), 1<<20)
	return o, nil
}

func (o *old) changed(format string, args ...any) error {
	return fault.OutputChanged.New("%s was changed since the job wrote it: %w", o.path, fmt.Errorf(format, args...))
}

// verify reads the rest of the file and compares all of it with what the job wrote.
func (o *old) verify(want chunk.CRC) error {
	if _, err := io.Copy(io.Discard, o.in); err != nil {
		return o.changed("%w", err)
	}
	if got := chunk.CRC(o.sum.CRC); got != want {
		return o.changed("it has checksum %s instead of %s", got, want)
	}
	return nil
}

func (o *old) close() {
	if o != nil {
		o.file.Close()
	}
}

// oldLines reads the lines of a file of the old output.
type oldLines struct {
	*old
	lines   *bufio.Reader // after decoding
	decoded io.Closer     // nil for plain lines
	at      int64         // bytes of lines that were read
	memory  bytes.Buffer  // the current line, if it was decoded,
	mapped  files.Mapping // else where it is: a record may have failed for being too long to read
}

func openLines(path string, format encode.Format) (*oldLines, error) {
	file, err := openOld(path)
	if err != nil {
		return nil, err
	}
	o := &oldLines{old: file, lines: file.in}
	if format.Codec != nil {
		decoded, err := format.Codec.Decode(file.in)
		if err != nil {
			file.close()
			return nil, file.changed("%w", err)
		}
		o.lines, o.decoded = bufio.NewReaderSize(decoded, 1<<20), decoded
	}
	return o, nil
}

func (o *oldLines) close() {
	if o.decoded != nil {
		o.decoded.Close()
	}
	o.mapped.Unmap()
	o.old.close()
}

// read passes the next bytes on, up to an offset; all that follow if that is negative.
func (o *oldLines) read(to int64, with func(in io.Reader, size int64) (int64, error)) error {
	if to >= 0 && to < o.at {
		return o.changed("no record is at byte %d", to)
	}
	n, err := with(o.lines, to-o.at)
	o.at += n
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return o.changed("it is too short")
	case err != nil && fault.As(err) == nil: // not of what is written
		return o.changed("%w", err)
	}
	return err
}

// skip reads up to an offset.
func (o *oldLines) skip(to int64) error {
	return o.read(to, func(in io.Reader, size int64) (int64, error) { return io.CopyN(io.Discard, in, size) })
}

// line returns the next bytes up to an offset; up to the next line end if that is negative. They
// are valid until the next call.
func (o *oldLines) line(to int64) (_ []byte, err error) {
	o.memory.Reset()
	o.mapped.Unmap()
	o.mapped = files.Mapping{}
	held, start := io.Writer(&o.memory), o.at
	if o.decoded == nil {
		held = io.Discard
	}
	for more := to < 0; more; {
		piece, failed := o.lines.ReadSlice('\n')
		o.at += int64(len(piece))
		_, _ = held.Write(piece)
		if more = errors.Is(failed, bufio.ErrBufferFull); !more && failed != nil {
			return nil, failed
		}
	}
	if to >= 0 {
		err = o.read(to, func(in io.Reader, size int64) (int64, error) { return io.CopyN(held, in, size) })
	}
	if err != nil || o.decoded != nil {
		return o.memory.Bytes(), err
	}
	o.mapped, err = files.Map(o.file, start, o.at-start)
	return o.mapped.Data, err
}

// oldArrays reads the rows of the arrays beside the old output. Those of the masks follow from
// the failures.
type oldArrays struct {
	layout *columns.Layout
	files  []*old // of the columns
	sums   []chunk.CRC
}

func (a *oldArrays) open(r Retried) error {
	a.layout = r.Layout
	for i, array := range r.Arrays {
		if array.Mask || r.NoValues {
			continue
		}
		file, err := openOld(array.Path)
		if err != nil {
			return err
		}
		a.files, a.sums = append(a.files, file), append(a.sums, chunk.CRC(r.ArraySums[i].CRC))
		if _, err := file.in.Discard(npy.HeaderBytes); err != nil {
			return file.changed("%w", err)
		}
	}
	return nil
}

// next returns the values of the next rows.
func (a *oldArrays) next(rows int) ([]byte, error) {
	if len(a.files) == 0 {
		return nil, nil
	}
	values := make([]byte, rows*a.layout.RowBytes())
	for at := 0; at < len(values); {
		for k, file := range a.files {
			size := a.layout.Columns[k].Bytes()
			if _, err := io.ReadFull(file.in, values[at:at+size]); err != nil {
				return nil, file.changed("%w", err)
			}
			at += size
		}
	}
	return values, nil
}

func (a *oldArrays) verify() error {
	for i, file := range a.files {
		if err := file.verify(a.sums[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *oldArrays) close() {
	for _, file := range a.files {
		file.close()
	}
}

// source is a file of the old output that is taken over, in order, while some results are
// replaced.
type source interface {
	// keepTo takes over everything before a position.
	keepTo(at int64) error
	// skip leaves out the failed record there, and returns its data.
	skip(f commit.Failed) ([]byte, error)
	// finish takes over what remains, and verifies the file.
	finish(want chunk.CRC) error
	close()
}

// lineSource is a file of lines. Positions are bytes before encoding.
type lineSource struct {
	*oldLines
	store  chunk.Store
	start  int64 // position of the file
	arrays *oldArrays
	to     *commit.Rewriter
}

func (l *lineSource) keepTo(at int64) error {
	if at < l.start {
		return l.changed("no record is at byte %d", at)
	}
	return l.keep(at - l.start)
}

func (l *lineSource) keep(to int64) error {
	return l.read(to, func(in io.Reader, size int64) (int64, error) { return l.to.Copy(in, size, l.arrays.next) })
}

func (l *lineSource) skip(f commit.Failed) ([]byte, error) {
	if f.Size == 0 {
		return f.Data, nil
	}
	line, err := l.line(f.At + f.Size - l.start)
	if err != nil {
		return nil, err
	}
	if f.Data == nil { // it had a mark in the input
		f.Data = bytes.TrimSuffix(line, []byte("\n"))
	}
	var got chunk.FileSum
	_, _ = got.Write(line)
	want, err := f.Placeholder(l.store)
	if err != nil {
		return nil, storage(err)
	}
	if got != want || chunk.Checksum(f.Data) != f.CRC32C {
		return nil, l.changed("byte %d is not the start of the failed record of line %d", f.At, f.Line)
	}
	_, err = l.arrays.next(1)
	return f.Data, err
}

func (l *lineSource) finish(want chunk.CRC) error {
	if err := l.keep(-1); err != nil {
		return err
	}
	return l.verify(want)
}

// tableSource is a file of a table. Positions are rows. Groups of rows without a replaced row are
// taken over as they are, the others are decoded and encoded again. If no record of the job
// succeeded, all rows are replaced, because the old ones lack the typed columns.
type tableSource struct {
	*old
	name     string // of the format
	format   table.Format
	noValues bool
	groups   []parquet.Placed
	number   int    // of the current group
	rows     int64  // in it
	data     []byte // of it
	start    int64  // its first row
	done     int64  // row up to which all is done
	decoded  []byte // its rows, once one of them is replaced,
	ends     []int  // and where they end
	to       *commit.Rewriter
}

func openTable(path string, f encode.Format, noValues bool, start int64, to *commit.Rewriter) (t *tableSource, err error) {
	file, err := openOld(path)
	if err != nil {
		return nil, err
	}
	t = &tableSource{old: file, name: f.Name, format: table.Of(f.Name), noValues: noValues, number: -1, start: start, done: start, to: to}
	info, err := file.file.Stat()
	if err == nil {
		t.groups, err = t.format.Groups(file.file, info.Size())
	}
	if err == nil && len(t.groups) > 0 {
		_, err = file.in.Discard(int(t.groups[0].Offset))
	}
	if err != nil {
		return t, t.changed("%w", err)
	}
	return t, t.nextGroup()
}

// nextGroup reads the next row group. After the last one there are only new rows.
func (t *tableSource) nextGroup() (err error) {
	t.number++
	t.start, t.done = t.start+t.rows, t.start+t.rows
	t.rows, t.data, t.decoded, t.ends = 0, nil, nil, nil
	if t.number >= len(t.groups) {
		return nil
	}
	var size int64
	if t.rows, size, err = t.format.Size(t.groups[t.number]); err == nil {
		t.data = make([]byte, size)
		_, err = io.ReadFull(t.in, t.data)
	}
	if err != nil {
		return t.changed("%w", err)
	}
	return nil
}

func (t *tableSource) keepTo(row int64) error {
	for t.number < len(t.groups) && row >= t.start+t.rows {
		if err := t.endGroup(); err != nil {
			return err
		}
	}
	if row < t.done || row > t.start+t.rows {
		return t.changed("it has no row %d", row)
	}
	return t.keepRows(row)
}

// keepRows takes over rows of the current group, which changes.
func (t *tableSource) keepRows(to int64) error {
	if t.done == to {
		return nil
	}
	if t.noValues {
		return t.changed("row %d is not the row of a failed record", t.done)
	}
	if t.ends == nil {
		if err := t.decode(); err != nil {
			return t.changed("%w", err)
		}
	}
	first, last, start := int(t.done-t.start), int(to-t.start), 0
	if first > 0 {
		start = t.ends[first-1]
	}
	o := commit.Outcome{Lines: t.decoded[start:t.ends[last-1]], Run: last - first}
	for _, end := range t.ends[first:last] {
		o.Values = columns.AppendEntry(o.Values, int64(end-start), true)
		start = end
	}
	t.done = to
	return t.to.Write(o)
}

func (t *tableSource) decode() error {
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	var file interface {
		Rows(ctx context.Context, group int, each func(row []byte) error) error
	}
	if t.name == arrow.Arrow.Name {
		file, err = arrow.OpenFile(t.file, info.Size(), format.Options{})
	} else {
		file, err = reader.OpenFile(t.file, info.Size(), format.Options{})
	}
	if err != nil {
		return err
	}
	return file.Rows(context.Background(), t.number, func(row []byte) error {
		t.decoded = append(t.decoded, row...)
		t.ends = append(t.ends, len(t.decoded))
		return nil
	})
}

// endGroup takes over the rest of the current group.
func (t *tableSource) endGroup() (err error) {
	if t.done == t.start && !t.noValues {
		err = t.to.Group(t.data, t.groups[t.number].Meta, t.rows)
	} else if err = t.keepRows(t.start + t.rows); err == nil {
		err = t.to.EndGroup()
	}
	if err != nil {
		return err
	}
	return t.nextGroup()
}

func (t *tableSource) skip(f commit.Failed) ([]byte, error) {
	if f.Size > 0 {
		t.done++
	}
	if t.done > t.start+t.rows {
		return nil, t.changed("it has no row %d", f.At)
	}
	return f.Data, nil
}

func (t *tableSource) finish(want chunk.CRC) error {
	for t.number < len(t.groups) {
		if err := t.endGroup(); err != nil {
			return err
		}
	}
	return t.verify(want)
}
