package commit

import (
	"io"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
)

// rowMemory holds rows on their way to the arrays. Only the committer uses it, so it serves
// one unit after another.
type rowMemory struct {
	values []byte // as they are in a part
	column []byte // of one array
}

// heldRows is the size up to which memory is kept for the next unit.
const heldRows = 16 << 20

// landArrays appends a unit's rows to the arrays and returns the sums of what it appended.
func (o *Output) landArrays(u *pendingUnit) ([]chunk.FileSum, error) {
	if len(o.arrays) == 0 {
		return nil, nil
	}
	sums := make([]chunk.FileSum, len(o.arrays))
	for _, r := range u.rows {
		if err := o.landRows(u, r, sums); err != nil {
			return nil, err
		}
	}
	for i, sum := range sums {
		o.writeback.begin(&o.arrays[i], sum.Bytes)
		o.arraySums[i] = o.arraySums[i].Join(sum)
	}
	if cap(o.rows.values) > heldRows {
		o.rows = rowMemory{}
	}
	return sums, nil
}

// landRows appends the rows of a part to the arrays. If there is one column and every row has
// it, the part has the bytes of the array.
func (o *Output) landRows(u *pendingUnit, r rowRange, sums []chunk.FileSum) error {
	layout := o.options.Layout.Get()
	rows, present := r.rows()
	if int64(present)*int64(layout.RowBytes()) != r.values[1] {
		return fault.New(fault.Storage, "read part %s: %w", r.part, columns.ErrIndex)
	}
	in := &piecesReader{pieces: []piece{{r.part + valuesSuffix, r.values[0], r.values[1]}}}
	defer in.close()
	whole := len(layout.Columns) == 1 && present == rows
	if !whole {
		o.rows.values = slices.Grow(o.rows.values[:0], int(r.values[1]))[:r.values[1]]
		if _, err := io.ReadFull(in, o.rows.values); err != nil {
			return partFault(err)
		}
		_, _ = u.readColumns.Values.Write(o.rows.values)
	}
	for i, a := range o.options.Arrays {
		t := &o.arrays[i]
		if whole && !a.Mask {
			sum, err := copySummed(t, in, r.values[1])
			if err != nil {
				return err
			}
			u.readColumns.Values, sums[i] = u.readColumns.Values.Join(sum), sums[i].Join(sum)
			continue
		}
		if a.Mask {
			o.rows.column = r.appendMask(o.rows.column[:0])
		} else {
			o.rows.column = r.appendColumn(o.rows.column[:0], layout, a.Column, o.rows.values)
		}
		if _, err := t.Write(o.rows.column); err != nil {
			return fault.New(fault.Storage, "write output %s: %w", t.path, err)
		}
		_, _ = sums[i].Write(o.rows.column)
	}
	return nil
}

// rows returns the number of rows, and of those with values.
func (r rowRange) rows() (all, present int) {
	for _, run := range r.runs {
		all += run.rows
		if run.values {
			present += run.rows
		}
	}
	return all, present
}

// appendColumn appends a column of the rows, whose values are these; zeros for rows without.
func (r rowRange) appendColumn(dst []byte, layout *columns.Layout, number int, values []byte) []byte {
	start, size := layout.Place(number)
	row := layout.RowBytes()
	for _, run := range r.runs {
		if !run.values {
			dst = append(dst, make([]byte, run.rows*size)...)
			continue
		}
		for range run.rows {
			dst = append(dst, values[start:start+size]...)
			values = values[row:]
		}
	}
	return dst
}

// appendMask appends a byte for each row: 1 if it has no values.
func (r rowRange) appendMask(dst []byte) []byte {
	for _, run := range r.runs {
		at := len(dst)
		dst = append(dst, make([]byte, run.rows)...)
		for i := at; !run.values && i < len(dst); i++ {
			dst[i] = 1
		}
	}
	return dst
}
