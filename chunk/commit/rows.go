package commit

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
)

// The results of a job with columns are cut into units row by row. A part then has two more
// files: an index with the length of each line, and the values of the columns. The lines of a
// table are its rows, and have no values beside them.

// rowRange is the rows of a part that belong to a unit: ranges of its index and its values.
type rowRange struct {
	index, values piece
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

// unitRows limits the rows of a unit.
const unitRows = 1 << 20

// collectRows is collectLines for an output with columns.
func (u *units) collectRows(part string, s chunk.Segment, ended func() error) error {
	if s.Columns == nil || s.Columns.Index.Bytes == 0 {
		return nil
	}
	index, err := os.ReadFile(part + suffixes[indexFile])
	if err != nil {
		return fault.PartDamaged.New("read part: %w", err)
	}
	rowBytes := int64(u.layout.Get().RowBytes())
	if u.table {
		rowBytes = 0
	}
	var at, from struct{ line, entry, value int64 }
	var next rowRange
	add := func() {
		if at.line == from.line {
			return
		}
		u.open.add(piece{part + suffixes[chunk.Results], from.line, at.line - from.line})
		u.open.raw += at.value - from.value
		next.index = piece{part + suffixes[indexFile], from.entry, at.entry - from.entry}
		next.values = piece{part + suffixes[valuesFile], from.value, at.value - from.value}
		u.open.rows = append(u.open.rows, next)
		_, _ = u.open.read.index.Write(index[from.entry:at.entry])
		from, next = at, rowRange{}
	}
	for rest := index; len(rest) > 0; {
		length, values, after, err := columns.NextEntry(rest)
		if err != nil {
			return fault.PartDamaged.New("read part %s: %w", part, err)
		}
		at.line, at.entry, rest = at.line+length, at.entry+int64(len(rest)-len(after)), after
		if values {
			at.value += rowBytes
		}
		next.count(values)
		u.open.count++
		if u.open.count >= unitRows || u.open.raw+at.line-from.line+at.value-from.value >= u.bytes {
			add()
			u.end()
			if err := ended(); err != nil {
				return err
			}
		}
	}
	add()
	if at.line != s.Files[chunk.Results].Bytes || at.value != s.Columns.Values.Bytes {
		return fault.PartDamaged.New("read part %s: %w", part, columns.ErrIndex)
	}
	return nil
}

// encodeTable encodes the unit as a group of rows, and returns its bytes and its description. The row of a
// failed record is a line, because it may be written before the layout is known.
func (u *pendingUnit) encodeTable() (pages [][]byte, meta []byte, err error) {
	in := &piecesReader{pieces: u.pieces}
	defer in.close()
	schema := u.of.layout.Get().Table
	group, rows := u.of.format.Begin(*schema), schema.Rows()
	buffered := bufio.NewReaderSize(io.TeeReader(in, &u.read.lines), copyBytes)
	var data, failed []byte
	u.read.index = chunk.FileSum{}
	for _, r := range u.rows {
		index, err := r.index.read()
		if err != nil {
			return nil, nil, err
		}
		_, _ = u.read.index.Write(index)
		for len(index) > 0 {
			var length int64
			var isRow bool
			if length, isRow, index, err = columns.NextEntry(index); err != nil {
				return nil, nil, err
			}
			data = slices.Grow(data[:0], int(length))[:length]
			if _, err := io.ReadFull(buffered, data); err != nil {
				return nil, nil, err
			}
			row := data
			if !isRow {
				if failed, err = rows.Append(failed[:0], bytes.TrimSuffix(data, newline), nil); err != nil {
					return nil, nil, err
				}
				row = failed
			}
			if err := group.Add(row); err != nil {
				return nil, nil, err
			}
		}
	}
	pages, meta = group.Finish()
	return pages, meta, nil
}
