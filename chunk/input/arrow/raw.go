package arrow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/tree"
)

// Rows decodes a record batch of a file that gpurun has written. It calls each for every row, which is
// valid until each returns, as a row of a table.
func (f *File) Rows(ctx context.Context, number int, each func(row []byte) error) (err error) {
	defer tree.Recovered(&err)
	batches := 0
	for _, b := range f.blocks {
		if b.kind != arrow.BatchMessage {
			return errors.New("gpurun has not written the file: it has a dictionary")
		}
		if batches++; batches <= number {
			continue
		}
		m, _, err := f.message(b.at)
		if err != nil {
			return truncated(err)
		}
		d := *f.decoder
		loaded, err := d.batch(m, body{reader: f.reader, at: b.at + b.meta, length: m.body}).load(within(columns, f.memory))
		if err != nil {
			return err
		}
		var row []byte
		for i := range loaded.rows {
			row = row[:0]
			for _, v := range loaded.members {
				row = v.raw(row, i, true)
			}
			if err := errors.Join(ctx.Err(), each(row)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("there is no record batch %d", number)
}

// raw appends a value as in a row of a table.
func (v *values) raw(dst []byte, i int64, optional bool) []byte {
	if v.layout == structLayout {
		for _, member := range v.children {
			switch {
			case v.isNull(i):
				dst = append(dst, 0)
			case member.isNull(i):
				dst = append(dst, 1)
			default:
				dst = member.raw(append(dst, 2), i, false)
			}
		}
		return dst
	}
	if optional {
		if v.valid != nil && v.valid[i>>3]>>(i&7)&1 == 0 {
			return append(dst, 0)
		}
		dst = append(dst, 1)
	}
	switch v.layout {
	case bitLayout:
		return append(dst, v.data[i>>3]>>(i&7)&1)
	case fixedLayout:
		return v.Type.AppendFromArrow(dst, v.data[i*int64(v.width):][:v.width])
	case bytesLayout:
		from, to := v.span(i)
		return v.Type.AppendFromArrow(dst, v.data[from:to])
	case listLayout, fixedListLayout:
	default:
		fail("gpurun has not written the column %q", v.Name)
	}
	from, to := v.elements(i)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(to-from))
	for at := from; at < to; at++ {
		dst = v.children[0].raw(dst, at, false)
	}
	return dst
}
