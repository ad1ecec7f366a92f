package arrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// Head returns the first bytes of a file.
func Head(s parquet.Schema) []byte {
	magic := append([]byte(arrow.Magic), 0, 0)
	return append(magic, padded(arrow.Message(arrow.SchemaMessage, schema(s), 0), len(magic))...)
}

// schema describes the columns. Metadata has the same keys as in a Parquet file.
func schema(s parquet.Schema) arrow.Fields {
	var fields []arrow.Fields
	for _, c := range s.All() {
		fields = append(fields, c.Arrow(c.Typed))
	}
	return arrow.Fields{1: fields, 2: s.ArrowMetadata()}
}

// Tail returns the end of a file with the given record batches: the footer.
func Tail(s parquet.Schema, batches []parquet.Placed, _ bool) ([]byte, error) {
	places := arrow.Structs{Size: arrow.BlockBytes}
	for i, p := range batches {
		m, err := decode(p)
		if err != nil {
			return nil, fmt.Errorf("record batch %d: %w", i, err)
		}
		places.Data = arrow.AppendWords(places.Data, p.Offset, m.head, m.body)
	}
	footer := arrow.Encode(arrow.Fields{0: arrow.Version5, 1: schema(s), 2: arrow.Structs{Size: arrow.BlockBytes}, 3: places})
	if len(footer) > math.MaxInt32 {
		return nil, fmt.Errorf("the footer of %d record batches is too long", len(batches))
	}
	tail := append(arrow.End(), footer...)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(footer)))
	return append(tail, arrow.Magic...), nil
}

// meta is the description of a record batch.
type meta struct{ rows, head, body int64 }

var errMeta = errors.New("its description is damaged")

func decode(p parquet.Placed) (m meta, err error) {
	if len(p.Meta) != 24 {
		return m, errMeta
	}
	for i, field := range []*int64{&m.rows, &m.head, &m.body} {
		if *field = int64(binary.LittleEndian.Uint64(p.Meta[8*i:])); *field < 0 {
			return m, errMeta
		}
	}
	return m, nil
}

// Size returns the rows of a record batch, and its bytes in the file.
func Size(p parquet.Placed) (rows, size int64, err error) {
	m, err := decode(p)
	return m.rows, m.head + m.body, err
}

// Fits reports whether a file has the columns of a schema.
func Fits(r io.ReaderAt, size int64, s parquet.Schema) (bool, error) {
	head := Head(s)
	if int64(len(head)) > size {
		return false, nil
	}
	is := make([]byte, len(head))
	_, err := r.ReadAt(is, 0)
	return bytes.Equal(is, head), err
}

// ReadGroups returns the record batches of a file that this package has written.
func ReadGroups(r io.ReaderAt, size int64) (list []parquet.Placed, err error) {
	defer func() {
		if recover() != nil { // the tables of a damaged file
			err = arrow.ErrTable
		}
	}()
	footer, err := arrow.ReadFooter(r, size)
	if err != nil {
		return nil, err
	}
	for blocks := footer.Structs(3, arrow.BlockBytes); len(blocks) > 0; blocks = blocks[arrow.BlockBytes:] {
		at, head := int64(binary.LittleEndian.Uint64(blocks)), int64(binary.LittleEndian.Uint32(blocks[8:]))
		if at < 0 || head < 8 || at > size-head {
			return nil, arrow.ErrTable
		}
		data := make([]byte, head)
		if _, err := r.ReadAt(data, at); err != nil {
			return nil, err
		}
		batch, _ := arrow.Root(data[8:]).Table(2)
		list = append(list, parquet.Placed{Offset: at, Meta: append(arrow.AppendWords(nil, batch.Int(0, 8, 0), head), blocks[16:24]...)})
	}
	return list, nil
}
