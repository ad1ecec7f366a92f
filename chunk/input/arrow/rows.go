package arrow

import (
	"encoding/binary"
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/jsonline"
)

const (
	// blockBytes is the size of the blocks of lines that are passed on, unless one line is larger.
	blockBytes = 256 << 10
	// viewBytes is the size of a view: its length, and up to 12 bytes, or 4 of them, and where all are.
	viewBytes, inView = 16, 12
)

// maxRow is a variable so that tests can lower it.
var maxRow = parallel.MaxRow

// batch is a record batch that is being written.
type batch struct {
	members []*values // in the order of the lines
	rows    int64
	next    int64 // row
	first   int64 // row in the file
	dst     []byte
	start   int    // of the current line
	badText string // a column of the row with text that is not UTF-8
	current string // column
}

// lines returns the next lines; done is true if they are the last.
func (b *batch) lines() (lines []byte, done bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("row %d: column %q: %w", b.first+b.next+1, b.current, err)
		}
	}()
	defer recovered(&err)
	b.dst = make([]byte, 0, min(blockBytes+blockBytes/8, 256*(b.rows-b.next)))
	for ; b.next < b.rows && len(b.dst) < blockBytes; b.next++ {
		b.line()
	}
	return b.dst, b.next == b.rows, nil
}

// line appends the next row.
func (b *batch) line() {
	b.start, b.badText = len(b.dst), ""
	b.dst = append(b.dst, '{')
	for i, v := range b.members {
		b.current = v.name
		b.member(i, v, b.next)
	}
	if b.badText != "" {
		b.dst = append(b.dst, `,"_error":`...)
		b.dst = record.AppendRejection(b.dst, fmt.Sprintf("column %q is not valid UTF-8", b.badText))
	}
	b.dst = append(b.dst, '}', '\n')
}

// comma separates the elements of an array or object. It refuses a row that a few bytes make too long.
func (b *batch) comma(i int) {
	if i > 0 {
		b.dst = append(b.dst, ',')
	}
	if len(b.dst)-b.start > maxRow {
		fail("the row has more than %d MiB as JSON", maxRow>>20)
	}
}

// member appends a member of an object.
func (b *batch) member(i int, v *values, row int64) {
	b.comma(i)
	b.dst = append(b.dst, v.prefix...)
	b.value(v, row)
}

// value appends a value.
func (b *batch) value(v *values, i int64) {
	if i < 0 || i >= v.rows {
		fail("value %d of %d", i, v.rows)
	}
	if v.layout == nullLayout || v.valid != nil && v.valid[i>>3]>>(i&7)&1 == 0 {
		b.dst = append(b.dst, "null"...)
		return
	}
	switch v.layout {
	case bitLayout:
		if v.data[i>>3]>>(i&7)&1 == 0 {
			b.dst = append(b.dst, "false"...)
		} else {
			b.dst = append(b.dst, "true"...)
		}
	case fixedLayout:
		b.dst = v.write(b.dst, v.data[i*int64(v.width):][:v.width])
	case bytesLayout:
		from, to := v.span(i)
		if to > int64(len(v.data)) {
			fail("a value ends at %d of %d bytes", to, len(v.data))
		}
		b.bytes(v, v.data[from:to])
	case viewLayout:
		b.bytes(v, v.view(i))
	case indexLayout:
		piece, at := v.from.find(number(v.data[i*int64(v.width):][:v.width], v.unsigned))
		b.value(piece, at)
	case unionLayout:
		b.union(v, i)
	case runsLayout:
		b.value(v.children[1], v.run(i))
	default:
		b.nested(v, i)
	}
}

// bytes appends text or bytes.
func (b *batch) bytes(v *values, data []byte) {
	b.dst = v.write(b.dst, data)
	if v.text && !utf8.Valid(data) {
		b.badText = b.current
	}
}

// nested appends a struct, list or map.
func (b *batch) nested(v *values, i int64) {
	from, to := int64(0), int64(0)
	switch v.layout {
	case structLayout:
		b.dst = append(b.dst, '{')
		for k, child := range v.children {
			b.member(k, child, i)
		}
		b.dst = append(b.dst, '}')
		return
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
	if v.isMap {
		b.pairs(v.children[0], from, to)
		return
	}
	b.dst = append(b.dst, '[')
	for at := from; at < to; at++ {
		b.comma(int(at - from))
		b.value(v.children[0], at)
	}
	b.dst = append(b.dst, ']')
}

// pairs appends keys and values. Keys that are not text become text.
func (b *batch) pairs(v *values, from, to int64) {
	b.dst = append(b.dst, '{')
	for at := from; at < to; at++ {
		b.comma(int(at - from))
		start := len(b.dst)
		b.value(v.children[0], at)
		if b.dst[start] != '"' {
			key := string(b.dst[start:])
			b.dst = jsonline.AppendString(b.dst[:start], key)
		}
		b.dst = append(b.dst, ':')
		b.value(v.children[1], at)
	}
	b.dst = append(b.dst, '}')
}

// union appends a value of one of several types.
func (b *batch) union(v *values, i int64) {
	child, ok := v.byNumber[int8(v.data[i])]
	if !ok {
		fail("a value of the unknown type %d", int8(v.data[i]))
	}
	if v.dense {
		i = int64(int32(binary.LittleEndian.Uint32(v.offsets[4*i:])))
	}
	b.value(v.children[child], i)
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
		return number(ends.data[k*ends.width:][:ends.width], false) > i
	}))
}
