package commit

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// The results of a job with columns are cut into units row by row. A part then has two more
// files: an index with the length of each line, and the values of the columns.
const (
	indexSuffix  = ".rows"
	valuesSuffix = ".cols"
)

// rowUnits is how the units of an output with columns are encoded.
type rowUnits struct {
	layout *columns.Shared
	arrays []Array
	table  bool
	// stopped is closed when nothing more is encoded. Rows without values may wait for
	// the layout until then.
	stopped chan struct{}
}

// rowRange is the rows of a part that belong to a unit: ranges of its index and its values.
type rowRange struct {
	part          string
	index, values [2]int64 // offset and length
	runs          []rowRun
}

// rowRun is how many consecutive rows of a part have values, or have none.
type rowRun struct {
	rows   int
	values bool
}

// count adds the next row.
func (r *rowRange) count(values bool) {
	if n := len(r.runs); n > 0 && r.runs[n-1].values == values {
		r.runs[n-1].rows++
		return
	}
	r.runs = append(r.runs, rowRun{1, values})
}

// takeRows is take for an output with columns.
func (u *units) takeRows(part string, s chunk.Segment, ended func() error) error {
	if s.Columns == nil || s.Columns.Index.Bytes == 0 {
		u.takeSegment(s)
		return nil
	}
	index, err := os.ReadFile(part + indexSuffix)
	if err != nil {
		return fault.New(fault.Storage, "read part: %w", err)
	}
	rowBytes := int64(u.rows.layout.Get().RowBytes())
	var at, from struct{ line, entry, value int64 }
	next := rowRange{part: part}
	add := func() {
		if at.line == from.line {
			return
		}
		u.open.add(piece{part + suffixes[chunk.Results], from.line, at.line - from.line})
		u.open.raw += at.value - from.value
		next.index, next.values = [2]int64{from.entry, at.entry - from.entry}, [2]int64{from.value, at.value - from.value}
		u.open.rows = append(u.open.rows, next)
		_, _ = u.open.readColumns.Index.Write(index[from.entry:at.entry])
		from, next = at, rowRange{part: part}
	}
	for rest := index; len(rest) > 0; {
		length, values, after, err := columns.NextEntry(rest)
		if err != nil {
			return fault.New(fault.Storage, "read part %s: %w", part, err)
		}
		at.line, at.entry, rest = at.line+length, at.entry+int64(len(rest)-len(after)), after
		if values {
			at.value += rowBytes
		}
		next.count(values)
		if u.open.raw+at.line-from.line+at.value-from.value >= u.bytes {
			add()
			u.end()
			if err := ended(); err != nil {
				return err
			}
		}
	}
	add()
	if at.line != s.Files[chunk.Results].Bytes || at.value != s.Columns.Values.Bytes {
		return fault.New(fault.Storage, "read part %s: %w", part, columns.ErrIndex)
	}
	u.takeSegment(s)
	return nil
}

// takeSegment notes a segment whose results are in units.
func (u *units) takeSegment(s chunk.Segment) {
	u.since.segments = append(u.since.segments, s)
	u.since.results = u.since.results.Join(s.Files[chunk.Results])
	if s.Columns != nil {
		u.since.columns.Index = u.since.columns.Index.Join(s.Columns.Index)
		u.since.columns.Values = u.since.columns.Values.Join(s.Columns.Values)
	}
}

// await waits until the layout is known, and reports whether it is.
func (r *rowUnits) await() bool {
	select {
	case <-r.layout.Known():
		return true
	case <-r.stopped:
		return false
	}
}

// stop ends all waits for the layout.
func (r *rowUnits) stop() {
	select {
	case <-r.stopped:
	default:
		close(r.stopped)
	}
}

// encodeTable encodes the unit as a row group, which goes to w.
func (u *pendingUnit) encodeTable(w io.Writer) error {
	layout := u.format.layout.Get()
	rows, lengths, err := u.readRows()
	if err == nil {
		err = rows.Check(layout)
	}
	if err != nil {
		return err
	}
	in := &piecesReader{pieces: u.pieces}
	defer in.close()
	u.sum, u.read = chunk.FileSum{}, chunk.FileSum{}
	group := parquet.Rows{Count: len(lengths), Lines: make([][]byte, len(lengths))}
	lines := make([]byte, u.lines)
	if _, err := io.ReadFull(in, lines); err != nil {
		return err
	}
	_, _ = u.read.Write(lines)
	for i, length := range lengths {
		if length > int64(len(lines)) {
			return columns.ErrIndex
		}
		group.Lines[i], lines = bytes.TrimSuffix(lines[:length], newline), lines[length:]
	}
	for i := range layout.Columns {
		group.Typed, group.Valid = append(group.Typed, rows.Column(layout, i)), append(group.Valid, rows.Valid(layout, i))
	}
	u.meta, _, err = layout.Table.EncodeGroup(io.MultiWriter(w, &u.sum), group)
	return err
}

// readRows reads the index and the values of the unit's rows.
func (u *pendingUnit) readRows() (rows columns.Rows, lengths []int64, err error) {
	u.readColumns = chunk.PartColumns{}
	for _, r := range u.rows {
		index, err := readRange(r.part+indexSuffix, r.index)
		if err != nil {
			return rows, nil, err
		}
		_, _ = u.readColumns.Index.Write(index)
		for len(index) > 0 {
			length, values, rest, err := columns.NextEntry(index)
			if err != nil {
				return rows, nil, err
			}
			index, lengths, rows.Present = rest, append(lengths, length), append(rows.Present, values)
		}
		if r.values[1] == 0 {
			continue
		}
		values, err := readRange(r.part+valuesSuffix, r.values)
		if err != nil {
			return rows, nil, err
		}
		_, _ = u.readColumns.Values.Write(values)
		if rows.Values == nil {
			rows.Values = values
		} else {
			rows.Values = append(rows.Values, values...)
		}
	}
	return rows, lengths, nil
}

// readRange reads a range of a part's file: offset and length.
func readRange(path string, at [2]int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Storage, "read part: %w", err)
	}
	defer file.Close()
	data := make([]byte, at[1])
	_, err = file.ReadAt(data, at[0])
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Storage, "read part: %w", err)
	}
	if err != nil {
		return nil, fault.New(fault.Storage, "read part: %s is shorter than it was when it was written", path)
	}
	return data, nil
}
