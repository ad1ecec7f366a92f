package commit

import (
	"bytes"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// results are the files of the output that hold results: lines or rows, in one file or in the
// parts of a folder, and the arrays beside them. Units are appended to them in order.
//
// The units of a table are groups of rows. Each of its files starts with a head, which is part of
// its first unit, and ends with a tail that describes the groups: a unit without rows.
type results struct {
	options   Options
	target    *target
	cutter    *partCutter
	part      int    // number of the current file
	units     []Unit // of a table: those of the current file
	raw       int64  // bytes before encoding
	sum       chunk.FileSum
	arrays    []target
	arraySums []chunk.FileSum // of their rows
	writeback *writeback
}

// openResults begins after what a state describes.
func openResults(options Options, state State, cutter *partCutter, targets []target, w *writeback) (*results, error) {
	r := &results{
		options: options, target: &targets[chunk.Results], arrays: targets[chunk.PartFiles:], writeback: w,
		cutter: cutter, part: len(cutter.parts) - 1, raw: state.Unencoded(), sum: state.ResultSum(),
	}
	if options.Format.Table {
		r.units = cutter.units
	}
	for i := range r.arrays {
		r.arraySums = append(r.arraySums, state.sideSum(i))
		if t := &r.arrays[i]; t.size == 0 { // the header is written at the end, when the number of rows is known
			if _, err := t.Write(make([]byte, npy.HeaderBytes)); err != nil {
				return nil, fault.WriteFailed.New("write %s: %w", t.path, err)
			}
		}
	}
	return r, nil
}

// begin begins the next part of a folder.
func (r *results) begin(name string) error {
	if err := r.target.nextPart(name); err != nil {
		return err
	}
	r.part++
	r.units = nil
	crash.Point("part-begun")
	return nil
}

// add appends a unit.
func (r *results) add(u *pendingUnit) (unit Unit, err error) {
	unit = Unit{Raw: u.lines, Meta: u.meta}
	if u.err != nil {
		return unit, u.err
	}
	var sum chunk.FileSum
	head := r.head()
	_, _ = sum.Write(head)
	if err := r.write(head); err != nil {
		return unit, err
	}
	switch {
	case u.of.segments:
		for _, p := range u.pieces {
			if err == nil {
				err = r.target.appendFile(p.path, p.length, r.target.copyPart)
			}
		}
	case u.data == nil:
		err = u.encode(r.target)
	}
	for _, data := range u.data {
		if err == nil {
			err = r.write(data)
		}
	}
	if err == nil {
		unit.Sides, err = r.addArrays(u)
	}
	if err != nil {
		return unit, err
	}
	r.writeback.begin(r.target, u.sum.Bytes)
	r.raw += u.lines
	r.count(&unit, sum.Join(u.sum))
	crash.Point("unit-appended")
	return unit, nil
}

// end ends the current file of a table.
func (r *results) end() (unit Unit, err error) {
	schema, format := *r.options.Layout.Get().Table, table.Of(r.options.Format.Name)
	tail, err := format.Tail(schema, placed(r.units, len(format.Head(schema))), r.target.parts)
	if err != nil {
		return unit, fault.WriteFailed.Of(fault.Unknown, "end output: %w", err)
	}
	tail = append(r.head(), tail...)
	if err := r.write(tail); err != nil {
		return unit, err
	}
	var sum chunk.FileSum
	_, _ = sum.Write(tail)
	r.count(&unit, sum)
	crash.Point("tail-appended")
	return unit, nil
}

// head returns the first bytes of a file of a table that is empty so far.
func (r *results) head() []byte {
	if !r.options.Format.Table || r.target.size > r.target.begun {
		return nil
	}
	return table.Of(r.options.Format.Name).Head(*r.options.Layout.Get().Table)
}

func (r *results) write(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if _, err := r.target.Write(data); err != nil {
		return fault.WriteFailed.New("write output %s: %w", r.target.path, err)
	}
	return nil
}

// count adds a unit that has been appended to the sums of its file.
func (r *results) count(u *Unit, sum chunk.FileSum) {
	u.Bytes, u.CRC = sum.Bytes, sum.CRC
	r.sum = r.sum.Join(sum)
	r.cutter.parts[r.part].join(sum)
	if r.options.Format.Table {
		r.units = append(r.units, *u)
	}
}

// placed returns where the groups of rows among the units of a file are in it, behind a head.
func placed(units []Unit, head int) (groups []parquet.Placed) {
	var at int64
	for _, u := range units {
		offset := at
		if at == 0 {
			offset = int64(head)
		}
		if u.Meta != nil {
			groups = append(groups, parquet.Placed{Offset: offset, Meta: u.Meta})
		}
		at += u.Bytes
	}
	return groups
}

// complete writes the headers of the arrays.
func (r *results) complete() error {
	for i, a := range r.options.Arrays {
		t := &r.arrays[i]
		if _, err := t.file.WriteAt(a.Header(r.options.Layout.Get(), t.size), 0); err != nil {
			return fault.WriteFailed.New("write output %s: %w", t.path, err)
		}
	}
	return nil
}

// present returns a fault if a part was removed from the folder or changed its size.
func (r *results) present() error {
	if !r.target.parts {
		return nil
	}
	for _, p := range r.cutter.parts {
		path := filepath.Join(r.target.temporary, p.Name)
		size, err := sizeOf(path)
		if err != nil {
			return storageOf(path, err)
		}
		if size != p.Bytes {
			return removedMeanwhile(path)
		}
	}
	return nil
}

// addArrays appends a unit's rows to the arrays and returns the sums of what it appended.
func (r *results) addArrays(u *pendingUnit) ([]chunk.FileSum, error) {
	if len(r.arrays) == 0 {
		return nil, nil
	}
	sums := make([]chunk.FileSum, len(r.arrays))
	for _, rows := range u.rows {
		if err := r.addRows(u, rows, sums); err != nil {
			return nil, err
		}
	}
	for i, sum := range sums {
		r.writeback.begin(&r.arrays[i], sum.Bytes)
		r.arraySums[i] = r.arraySums[i].Join(sum)
	}
	return sums, nil
}

// addRows appends the rows of a part to the arrays. If there is one column and every row has
// it, the part has the bytes of the array.
func (r *results) addRows(u *pendingUnit, from rowRange, sums []chunk.FileSum) error {
	layout := r.options.Layout.Get()
	rows, present := from.rows()
	if int64(present)*int64(layout.RowBytes()) != from.values.length {
		return fault.PartDamaged.New("read part %s: %w", from.values.path, columns.ErrIndex)
	}
	in := &piecesReader{pieces: []piece{from.values}}
	defer in.close()
	whole := len(layout.Columns) == 1 && present == rows
	var values []byte
	if !whole {
		values = make([]byte, from.values.length)
		if _, err := io.ReadFull(in, values); err != nil {
			return partFault(err)
		}
		_, _ = u.read.values.Write(values)
	}
	for i, a := range r.options.Arrays {
		t := &r.arrays[i]
		if whole && !a.Mask {
			sum, err := copySummed(t, in, from.values.length)
			if err != nil {
				return err
			}
			u.read.values, sums[i] = u.read.values.Join(sum), sums[i].Join(sum)
			continue
		}
		column := from.column(a, layout, values)
		if _, err := t.Write(column); err != nil {
			return fault.WriteFailed.New("write output %s: %w", t.path, err)
		}
		_, _ = sums[i].Write(column)
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

// column returns what an array has of the rows, whose values are these: zeros for rows without. A
// mask has a 1 for these.
func (r rowRange) column(a Array, layout *columns.Layout, values []byte) (column []byte) {
	var start, size int
	if !a.Mask {
		start, size = layout.Place(a.Column)
	}
	for _, run := range r.runs {
		switch {
		case a.Mask && run.values:
			column = append(column, make([]byte, run.rows)...)
		case a.Mask:
			column = append(column, bytes.Repeat([]byte{1}, run.rows)...)
		case !run.values:
			column = append(column, make([]byte, run.rows*size)...)
		default:
			for range run.rows {
				column = append(column, values[start:start+size]...)
				values = values[layout.RowBytes():]
			}
		}
	}
	return column
}
