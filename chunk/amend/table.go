package amend

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// NextGroups is the name of the new list of row groups until it replaces the old one.
const NextGroups = "groups.next"

// tableFiles are the results as a table. A part without a replaced row is linked. Row groups
// without one are copied as they are, the others are decoded and encoded again. If no record
// of the job succeeded, all rows are replaced, because the old ones lack the typed columns.
type tableFiles struct {
	Retried
	to     string
	schema *parquet.Schema
	groups []commit.FileGroups // of the old files

	number int   // of the current file
	row    int64 // of the old table, up to which all is done
	done   int64 // rows of the new table before the current group

	// The current file. It is unchanged while from is nil: then start is its first row.
	from   *os.File
	old    io.Reader
	read   chunk.FileSum
	next   *nextFile
	placed []parquet.Placed
	units  []commit.Unit
	rows   int64 // in the new file
	grown  int64 // how many bytes more it has before encoding

	// The current row group.
	group  int
	start  int64 // its first row
	data   []byte
	opened *parquet.Group // decoded
	from0  int            // row of it up to which pieces are complete
	pieces []parquet.Piece
	added  int64 // rows of pieces

	written []commit.ManifestPart
	all     []commit.FileGroups
}

func openTable(r Retried, to string) (resultFiles, error) {
	t := &tableFiles{Retried: r, to: to, schema: r.Layout.Table}
	var err error
	if t.groups, err = commit.ReadGroups(r.Groups); err != nil {
		return t, fault.New(fault.Conflict, "read row groups: %w", err)
	}
	if r.Parts != nil {
		commit.RemoveParts(to) // left by a killed attempt
		if err := os.MkdirAll(to, 0o777); err != nil {
			return t, fault.New(fault.Storage, "create output: %w", err)
		}
	}
	if len(t.groups) != max(1, len(r.Parts)) {
		return t, fault.New(fault.Conflict, "%s describes %d files instead of %d", r.Groups, len(t.groups), max(1, len(r.Parts)))
	}
	return t, t.beginFile()
}

// path returns the path of the current file.
func (t *tableFiles) path(dir string) string {
	if t.Parts == nil {
		return dir
	}
	return filepath.Join(dir, t.Parts[t.number].Name)
}

func (t *tableFiles) changed(format string, args ...any) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", t.path(t.Output), fmt.Errorf(format, args...))
}

// beginFile begins with the next file, which is rewritten in any case unless it is a part.
func (t *tableFiles) beginFile() error {
	t.start, t.from0, t.pieces, t.added, t.opened, t.data, t.group = t.row, 0, nil, 0, nil, nil, 0
	if t.Parts != nil && !t.NoValues {
		return nil
	}
	return t.touch()
}

// touch creates a new file for the current one, with what has been taken over so far.
func (t *tableFiles) touch() error {
	if t.from != nil {
		return nil
	}
	row := t.row
	t.row = t.start
	if err := t.openFile(); err != nil {
		return err
	}
	for row >= t.end() && t.group < len(t.rowGroups()) {
		if err := t.endGroup(); err != nil {
			return err
		}
	}
	t.row = row
	return nil
}

func (t *tableFiles) openFile() (err error) {
	if t.from, err = os.Open(t.path(t.Output)); err != nil {
		return fault.New(fault.Usage, "open output: %w", err)
	}
	t.read = chunk.FileSum{}
	t.old = bufio.NewReaderSize(io.TeeReader(t.from, &t.read), 1<<20)
	if t.next, err = createNext(t.path(t.to), files.PublicMode, encode.Lines()); err != nil {
		return err
	}
	t.placed, t.units, t.rows, t.grown, t.group = nil, nil, 0, 0, -1
	if _, err := io.CopyN(io.Discard, t.old, int64(len(t.schema.Head()))); err != nil {
		return t.changed("%w", err)
	}
	if _, err := t.next.Write(t.schema.Head()); err != nil {
		return storage(err)
	}
	return t.beginGroup()
}

// rowGroups are those of the current file.
func (t *tableFiles) rowGroups() []commit.FileGroup { return t.groups[t.number].Groups }

// beginGroup reads the next row group. After the last one there are only new rows.
func (t *tableFiles) beginGroup() error {
	t.group++
	t.start, t.from0, t.pieces, t.added, t.opened, t.data = t.row, 0, nil, 0, nil, nil
	if t.group >= len(t.rowGroups()) {
		return nil
	}
	t.data = make([]byte, t.rowGroups()[t.group].Bytes)
	if _, err := io.ReadFull(t.old, t.data); err != nil {
		return t.changed("%w", err)
	}
	return nil
}

// end returns the row at which the current row group ends, or an unchanged file.
func (t *tableFiles) end() int64 {
	switch {
	case t.from == nil:
		return t.start + rowsOf(t.groups[t.number])
	case t.group >= len(t.rowGroups()):
		return t.start
	}
	return t.start + t.rowGroups()[t.group].Rows
}

func rowsOf(file commit.FileGroups) (rows int64) {
	for _, g := range file.Groups {
		rows += g.Rows
	}
	return rows
}

// open decodes the current row group, because some of its rows change.
func (t *tableFiles) open() (err error) {
	if t.opened != nil || t.data == nil || t.NoValues {
		return nil
	}
	if t.opened, err = t.schema.DecodeGroup(t.data, t.rowGroups()[t.group].Meta); err != nil {
		return t.changed("%w", err)
	}
	return nil
}

// cut takes over the old rows before the current one.
func (t *tableFiles) cut() error {
	if err := t.open(); err != nil {
		return err
	}
	if to := int(t.row - t.start); to > t.from0 {
		if t.NoValues {
			return t.changed("row %d is not that of a failed record", t.start+int64(t.from0))
		}
		t.pieces = append(t.pieces, parquet.Piece{Old: t.opened, From: t.from0, To: to})
		t.added += int64(to - t.from0)
		t.from0 = to
	}
	return nil
}

// endGroup takes over the rest of the current row group.
func (t *tableFiles) endGroup() error {
	t.row = t.end()
	data, meta, rows := t.data, []byte(nil), t.end()-t.start
	if len(t.pieces) > 0 || t.from0 > 0 {
		if err := t.cut(); err != nil {
			return err
		}
		var encoded bytes.Buffer
		var err error
		if meta, _, err = t.schema.EncodePieces(&encoded, t.pieces); err != nil {
			return fault.New(fault.Storage, "rewrite output: %w", err)
		}
		data, rows = encoded.Bytes(), t.added
	} else if t.data != nil {
		meta = t.rowGroups()[t.group].Meta
	}
	if rows > 0 {
		t.placed = append(t.placed, parquet.Placed{Offset: t.next.length, Meta: meta})
		t.units = append(t.units, commit.Unit{Bytes: int64(len(data)), Meta: meta})
		if _, err := t.next.Write(data); err != nil {
			return storage(err)
		}
	}
	t.rows += rows
	t.done += rows
	return t.beginGroup()
}

// endFile takes over the rest of the current file and completes the new one.
func (t *tableFiles) endFile() error {
	if t.from == nil {
		return t.linkFile()
	}
	for t.group < len(t.rowGroups()) || len(t.pieces) > 0 {
		if err := t.endGroup(); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, t.old); err != nil {
		return t.changed("%w", err)
	}
	want := t.CRC
	var part commit.ManifestPart
	if t.Parts != nil {
		part = t.Parts[t.number]
		part.Unencoded += t.grown
		want = part.CRC32C
	}
	if chunk.CRC(t.read.CRC) != want {
		return t.changed("it has checksum %s instead of %s", chunk.CRC(t.read.CRC), want)
	}
	tail, err := t.schema.Tail(t.placed)
	if err != nil {
		return fault.New(fault.Unknown, "end output: %w", err)
	}
	if _, err := t.next.Write(tail); err != nil {
		return storage(err)
	}
	if err := cmp.Or(t.next.finish(), t.next.file.Close()); err != nil {
		return storage(err)
	}
	part.Lines, part.Bytes, part.CRC32C = t.rows, t.next.sum.Bytes, chunk.CRC(t.next.sum.CRC)
	t.written = append(t.written, part)
	t.all = append(t.all, commit.GroupsOf(t.units))
	t.from.Close()
	t.from, t.next = nil, nil
	return nil
}

// linkFile takes over an unchanged part.
func (t *tableFiles) linkFile() error {
	if err := commit.LinkFile(t.path(t.Output), t.path(t.to)); err != nil {
		return storage(err)
	}
	t.row = t.end()
	t.done += t.row - t.start
	t.written, t.all = append(t.written, t.Parts[t.number]), append(t.all, t.groups[t.number])
	return nil
}

func (t *tableFiles) reach(f record.Failure) error {
	for t.Parts != nil && f.Record-t.Parts[t.number].First >= t.Parts[t.number].Records {
		if t.number == len(t.Parts)-1 {
			return t.changed("it has no record %d", f.Record)
		}
		if err := t.endFile(); err != nil {
			return err
		}
		t.number++
		if err := t.beginFile(); err != nil {
			return err
		}
	}
	for t.from != nil && f.At >= t.end() && t.group < len(t.rowGroups()) {
		if err := t.endGroup(); err != nil {
			return err
		}
	}
	if f.At < t.row || f.Size > 0 && f.At >= t.end() || f.At > t.end() {
		return t.changed("it has no row %d", f.At)
	}
	t.row = f.At
	return nil
}

func (t *tableFiles) keep(f record.Failure, line []byte) error {
	if !t.NoValues || f.Size == 0 {
		t.row += f.Size
		return nil
	}
	if err := t.leaveOut(line); err != nil {
		return err
	}
	return t.insert(parquet.Rows{Count: 1, Lines: [][]byte{line}}, columns.Rows{Present: []bool{false}})
}

func (t *tableFiles) skip(f record.Failure, data []byte) error {
	if f.Size == 0 {
		return nil
	}
	line, err := failedRow(f, data)
	if err != nil {
		return err
	}
	return t.leaveOut(line)
}

// failedRow returns the line of a failed record, whose data this is.
func failedRow(f record.Failure, data []byte) ([]byte, error) {
	var line bytes.Buffer
	if err := record.WriteRow(&line, data, f.Mark()); err != nil {
		return nil, storage(err)
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), nil
}

// leaveOut leaves out the current row, of which this is the line.
func (t *tableFiles) leaveOut(line []byte) error {
	if err := t.touch(); err != nil {
		return err
	}
	if err := t.cut(); err != nil {
		return err
	}
	t.row++
	t.from0++
	t.grown -= int64(len(line)) + 1
	return nil
}

func (t *tableFiles) add(from io.Reader, size, values int64) error {
	lines := make([]byte, size)
	if _, err := io.ReadFull(from, lines); err != nil {
		return fault.New(fault.Storage, "read results: %w", err)
	}
	rows, err := readRows(from, values, t.Layout)
	if err != nil {
		return err
	}
	var new parquet.Rows
	for line := range bytes.Lines(lines) {
		new.Lines = append(new.Lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	new.Count = len(new.Lines)
	if rows.Present == nil {
		rows.Present = make([]bool, new.Count)
		for i := range rows.Present {
			rows.Present[i] = true
		}
	}
	return t.insert(new, rows)
}

// insert adds new rows in front of the current one.
func (t *tableFiles) insert(new parquet.Rows, rows columns.Rows) error {
	if len(rows.Present) != new.Count {
		return fault.New(fault.Unknown, "bug: the retry has %d lines and %d rows", new.Count, len(rows.Present))
	}
	for i := range t.Layout.Columns {
		new.Typed, new.Valid = append(new.Typed, rows.Column(t.Layout, i)), append(new.Valid, rows.Valid(t.Layout, i))
	}
	if err := t.touch(); err != nil {
		return err
	}
	if err := t.cut(); err != nil {
		return err
	}
	for _, line := range new.Lines {
		t.grown += int64(len(line)) + 1
	}
	t.grown += int64(len(rows.Values))
	t.pieces = append(t.pieces, parquet.Piece{New: new})
	t.added += int64(new.Count)
	return nil
}

func (t *tableFiles) addFailed(f record.Failure, data []byte) error {
	row, err := failedRow(f, data)
	if err != nil {
		return err
	}
	return t.insert(parquet.Rows{Count: 1, Lines: [][]byte{row}}, columns.Rows{Present: []bool{false}})
}

func (t *tableFiles) at() int64 {
	pending := t.added
	if n := t.row - t.start - int64(t.from0); n > 0 {
		pending += n
	}
	return t.done + pending
}

func (t *tableFiles) finish() error {
	for {
		if err := t.endFile(); err != nil {
			return err
		}
		if t.number++; t.number >= len(t.groups) {
			break
		}
		if err := t.beginFile(); err != nil {
			return err
		}
	}
	if t.Parts != nil {
		if err := files.SyncDir(t.to); err != nil {
			return storage(err)
		}
	}
	return commit.WriteGroups(filepath.Join(t.Dir, NextGroups), t.all)
}

func (t *tableFiles) parts() []commit.ManifestPart { return t.written }

func (t *tableFiles) arraySums() []chunk.FileSum { return nil }

func (t *tableFiles) close() {
	if t.from != nil {
		t.from.Close()
	}
	if t.next != nil {
		t.next.file.Close()
	}
}
