package parquet

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// Rows are the rows of a row group.
type Rows struct {
	Count int
	// Lines are the rows as JSON objects, without line ends.
	Lines [][]byte
	// Typed holds the values of the typed columns, in the order of the schema: little-endian,
	// Width values for each row.
	Typed [][]byte
	// Valid reports for each typed column which rows have it; nil means that all do. The
	// others have zeros in Typed, and null in the file.
	Valid [][]bool
}

// groupMeta describes an encoded row group. It is stored as JSON until the file is
// complete.
type groupMeta struct {
	Rows    int64       `json:"rows"`
	Columns []chunkMeta `json:"columns"`
}

// chunkMeta describes a column of a row group.
type chunkMeta struct {
	Values   int64  `json:"values"` // nulls included
	Nulls    int64  `json:"nulls,omitempty"`
	Packed   int64  `json:"packed"`   // bytes in the file
	Unpacked int64  `json:"unpacked"` // bytes before compression
	Min      []byte `json:"min,omitempty"`
	Max      []byte `json:"max,omitempty"`
}

// Head returns the first bytes of a file.
func (s Schema) Head() []byte { return []byte(spec.Magic) }

// EncodeGroup writes a row group to w and returns its description, for Tail, and its size.
// Both depend on the schema and the rows alone. It is safe for concurrent use. A line that
// does not fit is an error, unless it is a failed record: what does not fit of that is null.
func (s Schema) EncodeGroup(w io.Writer, r Rows) (meta []byte, n int64, err error) {
	return s.EncodePieces(w, []Piece{{New: r}})
}

// addRows adds rows to the columns.
func (s Schema) addRows(writers []*columnWriter, r Rows) error {
	if err := s.checkRows(r); err != nil {
		return err
	}
	typed := 0
	for _, w := range writers {
		if w.column.Typed {
			var valid []bool
			if r.Valid != nil {
				valid = r.Valid[typed]
			}
			w.addTyped(r.Typed[typed], r.Count, valid)
			typed++
		}
	}
	return addLines(writers, r.Lines)
}

// writeGroup writes the columns of a row group.
func writeGroup(w io.Writer, writers []*columnWriter, rows int) (meta []byte, n int64, err error) {
	group := groupMeta{Rows: int64(rows)}
	for _, c := range writers {
		c.finish()
		group.Columns = append(group.Columns, c.meta)
		if _, err := w.Write(c.data); err != nil {
			return nil, n, err
		}
		n += int64(len(c.data))
	}
	meta, err = json.Marshal(group)
	return meta, n, err
}

// checkRows checks that there is as much of everything as there are rows.
func (s Schema) checkRows(r Rows) error {
	if len(r.Lines) != r.Count || r.Valid != nil && len(r.Valid) != len(r.Typed) {
		return fmt.Errorf("%d lines and marks of %d columns for %d rows", len(r.Lines), len(r.Valid), r.Count)
	}
	typed := 0
	for _, c := range s.Columns {
		if !c.Typed {
			continue
		}
		if typed >= len(r.Typed) || len(r.Typed[typed]) != r.Count*c.rowBytes() {
			return fmt.Errorf("column %q does not have %d rows", c.Name, r.Count)
		}
		if r.Valid != nil && len(r.Valid[typed]) != r.Count {
			return fmt.Errorf("column %q has %d marks for %d rows", c.Name, len(r.Valid[typed]), r.Count)
		}
		typed++
	}
	return nil
}

// addLines adds the values of the lines to the columns that are not typed.
func addLines(columns []*columnWriter, lines [][]byte) error {
	var plain []*columnWriter
	var names []string
	for _, c := range columns {
		if !c.column.Typed {
			plain, names = append(plain, c), append(names, c.column.Name)
		}
	}
	wanted := jsonline.Want(names...)
	failed := jsonline.Want(ErrorColumn)
	var info, mark jsonline.Info
	var buffer []byte
	for i, line := range lines {
		if err := wanted.Scan(line, &info); err != nil || !info.Object {
			return fmt.Errorf("line %d of the row group is not a JSON object", i+1)
		}
		for k, c := range plain {
			span := info.Spans[k]
			if !span.Present() {
				c.addNull()
				continue
			}
			err := c.addJSON(line[span.ValueStart:span.ValueEnd], &buffer)
			if err == nil {
				continue
			}
			if _ = failed.Scan(line, &mark); !mark.Spans[0].Present() {
				return fmt.Errorf("line %d of the row group: column %q: %w", i+1, c.column.Name, err)
			}
			c.addNull()
		}
	}
	return nil
}
