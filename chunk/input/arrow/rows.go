package arrow

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/jsonline"
)

const (
	// blockBytes is the size of the blocks of lines that are passed on, unless one line is larger.
	blockBytes = parallel.BlockBytes
	// viewBytes is the size of a view: its length, and up to 12 bytes, or 4 of them, and where all are.
	viewBytes, inView = 16, 12
)

// maxRow is a variable so that tests can lower it.
var maxRow = parallel.MaxRow

// batch is a record batch that is being written.
type batch struct {
	members []*values // in the order of the lines
	rows    int64
	size    int64 // bytes of a line, about
	next    int64 // row
	first   int64 // row in the file
	start   int   // of the current line
	current int   // member
	bad     int   // a member of the line with text that is not UTF-8, from 1
	blobs   int   // values beside each line
	beside  parallel.Beside
}

// block returns the next lines; done is true if they are the last.
func (b *batch) block() (block parallel.Block, done bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("row %d: column %q: %w", b.first+b.next+1, b.members[b.current].Name, err)
		}
	}()
	defer tree.Recovered(&err)
	b.beside = parallel.Beside{}
	lines := parallel.NewLines(min(blockBytes+blockBytes/8, b.size*(b.rows-b.next)))
	for ; b.next < b.rows && len(lines)+b.beside.Size < blockBytes; b.next++ {
		lines = b.line(lines)
	}
	return parallel.Block{Lines: lines, Blobs: b.beside.Rows, Beside: b.beside.Size}, b.next == b.rows, nil
}

// line appends the next row.
func (b *batch) line(dst []byte) []byte {
	b.start, b.bad = len(dst), 0
	b.beside.Next(b.blobs)
	dst = append(dst, '{')
	written := 0
	for i, v := range b.members {
		b.current = i
		if v.Beside >= 0 {
			b.blob(v, b.next)
		}
		if v.Inline {
			dst = b.member(dst, written, v, b.next)
			written++
		}
	}
	if b.bad > 0 {
		dst = b.members[b.bad-1].AppendBadText(dst)
	}
	return append(dst, '}', '\n')
}

// comma separates the elements of an array or object. It refuses a row that a few bytes make too long.
func (b *batch) comma(dst []byte, i int) []byte {
	if len(dst)-b.start > maxRow {
		fail("the row has more than %d MiB as JSON", maxRow>>20)
	}
	if i > 0 {
		dst = append(dst, ',')
	}
	return dst
}

// member appends a member of an object.
func (b *batch) member(dst []byte, i int, v *values, row int64) []byte {
	dst = append(b.comma(dst, i), v.Prefix...)
	return b.value(dst, v, row)
}

// value appends a value.
func (b *batch) value(dst []byte, v *values, i int64) []byte {
	if v.isNull(i) {
		return append(dst, "null"...)
	}
	switch v.layout {
	case bitLayout:
		return strconv.AppendBool(dst, v.data[i>>3]>>(i&7)&1 != 0)
	case fixedLayout:
		return v.Write(dst, v.data[i*int64(v.width):][:v.width])
	case bytesLayout:
		data, _ := v.plain(i)
		return b.bytes(dst, v, data)
	case viewLayout:
		return b.bytes(dst, v, v.view(i))
	case indexLayout:
		piece, at := v.from.find(arrow.Integer(v.data[i*int64(v.width):][:v.width], v.unsigned))
		return b.value(dst, piece, at)
	case unionLayout:
		child, at := v.member(i)
		return b.value(dst, child, at)
	case runsLayout:
		return b.value(dst, v.children[1], v.run(i))
	}
	return b.nested(dst, v, i)
}

// bytes appends text or bytes.
func (b *batch) bytes(dst []byte, v *values, data []byte) []byte {
	var valid bool
	if v.Type == parquet.String {
		dst, valid = jsonline.AppendText(dst, data)
	} else {
		dst, valid = v.Write(dst, data), !v.Text || utf8.Valid(data)
	}
	if !valid {
		b.bad = b.current + 1
	}
	return dst
}

// nested appends a struct, list or map.
func (b *batch) nested(dst []byte, v *values, i int64) []byte {
	if v.layout == structLayout {
		dst = append(dst, '{')
		for k, child := range v.children {
			dst = b.member(dst, k, child, i)
		}
		return append(dst, '}')
	}
	from, to := v.elements(i)
	if v.isMap {
		return b.pairs(dst, v.children[0], from, to)
	}
	dst = append(dst, '[')
	for at := from; at < to; at++ {
		dst = b.value(b.comma(dst, int(at-from)), v.children[0], at)
	}
	return append(dst, ']')
}

// pairs appends keys and values. Keys that are not text become text.
func (b *batch) pairs(dst []byte, v *values, from, to int64) []byte {
	dst = append(dst, '{')
	for at := from; at < to; at++ {
		dst = b.comma(dst, int(at-from))
		start := len(dst)
		if dst = b.value(dst, v.children[0], at); dst[start] != '"' {
			key := string(dst[start:])
			dst = jsonline.AppendString(dst[:start], key)
		}
		dst = b.value(append(dst, ':'), v.children[1], at)
	}
	return append(dst, '}')
}

// elements returns which elements of its child a list has.
func (v *values) elements(i int64) (from, to int64) {
	switch v.layout {
	case listLayout:
		from, to = v.span(i)
	case listViewLayout:
		from = v.offset(v.offsets, i)
		to = from + v.offset(v.sizes, i)
	case fixedListLayout:
		from = i * int64(v.width)
		to = from + int64(v.width)
	}
	if from < 0 || from > to || to > v.children[0].rows {
		fail("a list from %d to %d of %d elements", from, to, v.children[0].rows)
	}
	return from, to
}

// member returns which of the children of a union has a value, and its number there.
func (v *values) member(i int64) (*values, int64) {
	child, ok := v.byNumber[int8(v.data[i])]
	if !ok {
		fail("a value of the unknown type %d", int8(v.data[i]))
	}
	if v.dense {
		i = int64(int32(binary.LittleEndian.Uint32(v.offsets[4*i:])))
	}
	return v.children[child], i
}

// offset returns a number of a list of offsets.
func (v *values) offset(list []byte, i int64) int64 {
	if v.wide {
		return int64(binary.LittleEndian.Uint64(list[8*i:]))
	}
	return int64(int32(binary.LittleEndian.Uint32(list[4*i:])))
}

// span returns where a text or list begins and ends.
func (v *values) span(i int64) (from, to int64) {
	from, to = v.offset(v.offsets, i), v.offset(v.offsets, i+1)
	if from < 0 || from > to {
		fail("a value from %d to %d", from, to)
	}
	return from, to
}

// view returns the bytes of a view.
func (v *values) view(i int64) []byte {
	view := v.data[i*viewBytes:][:viewBytes]
	length := int64(int32(binary.LittleEndian.Uint32(view)))
	if length >= 0 && length <= inView {
		return view[4:][:length]
	}
	buffer, at := int(int32(binary.LittleEndian.Uint32(view[8:]))), int64(int32(binary.LittleEndian.Uint32(view[12:])))
	if length < 0 || at < 0 || buffer < 0 || buffer >= len(v.buffers) || at+length > int64(len(v.buffers[buffer])) {
		fail("a value of %d bytes outside its buffer", length)
	}
	return v.buffers[buffer][at : at+length]
}

// run returns the number of the run that a value is in.
func (v *values) run(i int64) int64 {
	ends := v.children[0]
	return int64(sort.Search(int(ends.rows), func(k int) bool {
		return arrow.Integer(ends.data[k*ends.width:][:ends.width], false) > i
	}))
}
