package arrow

import (
	"encoding/binary"
	"errors"
	"io"
	"sort"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/codec"
)

// values are the content of a column in a record batch, or of a dictionary.
type values struct {
	*column
	rows     int64
	valid    []byte // a bit for each value; nil: none is null
	data     []byte
	offsets  []byte
	sizes    []byte   // of list views
	buffers  [][]byte // of views
	children []*values
	from     dictionary // of indexes
}

// dictionary is the values that indexes refer to, in pieces: the first, and what was added to it.
type dictionary []piece

// piece is some values of a dictionary, and how many there are up to its end.
type piece struct {
	*values
	end int64
}

// add returns the dictionary with more values.
func (d dictionary) add(v *values) dictionary {
	end := v.rows
	if len(d) > 0 {
		end += d[len(d)-1].end
	}
	return append(d, piece{v, end})
}

// find returns the piece that has a value, and its number there.
func (d dictionary) find(i int64) (*values, int64) {
	at := sort.Search(len(d), func(k int) bool { return d[k].end > i })
	if i < 0 || at == len(d) {
		fail("a value that its dictionary does not have")
	}
	return d[at].values, i - (d[at].end - d[at].rows)
}

// body is the buffers of a message: bytes, or a place in a file.
type body struct {
	data    []byte
	reader  io.ReaderAt
	at      int64
	length  int64
	scratch *scratch // what is read from a file is placed there; nil for nowhere
}

// scratch is the memory of one record batch after the other: clearing new memory takes a sixth of the time of decoding.
type scratch struct{ all, free []byte }

// take returns n bytes, which may be of an earlier batch. expected is how many the batch will take.
func (s *scratch) take(n, expected int64) []byte {
	if s == nil || n > groupBytes {
		return make([]byte, n)
	}
	if int64(len(s.free)) < n {
		s.all = make([]byte, min(max(n, expected), groupBytes))
		s.free = s.all
	}
	taken := s.free[:n:n]
	s.free = s.free[n:]
	return taken
}

// read returns some bytes of the body.
func (b body) read(at, length int64) []byte {
	if b.reader == nil {
		return b.data[at : at+length]
	}
	data := b.scratch.take(length, b.length)
	if _, err := b.reader.ReadAt(data, b.at+at); err != nil && !errors.Is(err, io.EOF) {
		fail("%w", err)
	} else if err != nil {
		fail("the file ends within a record batch")
	}
	return data
}

// loader loads the columns of a record batch, in the order of the schema.
type loader struct {
	body         body
	nodes        []byte // rows and nulls of the columns that are left
	buffers      []byte // places of the buffers that are left
	views        []byte // how many buffers the columns of views that are left have
	codec        func(dst, packed []byte) ([]byte, error)
	most         func(packed []byte) int64 // that it can return
	version      int64
	dictionaries map[int64]dictionary
	// reserve asks for memory.
	reserve func(int64) error
	taken   int64
}

// newLoader returns a loader for the record batch that a message describes.
func newLoader(batch arrow.Table, b body, version int64, reserve func(int64) error) *loader {
	l := &loader{body: b, version: version, reserve: reserve,
		nodes: batch.Structs(1, arrow.NodeBytes), buffers: batch.Structs(2, arrow.BufferBytes), views: batch.Structs(4, 8)}
	if compression, ok := batch.Table(3); ok {
		switch number := compression.Int(0, 1, 0); number {
		case arrow.CodecLZ4:
			l.codec, l.most = codec.LZ4Frame, codec.LZ4Most
		case arrow.CodecZstd:
			l.codec, l.most = codec.Zstd, codec.ZstdMost
		default:
			fail("its buffers are compressed with codec %d, which is unknown", number)
		}
	}
	return l
}

// next takes a number of 8 bytes from a list.
func next(list *[]byte) int64 {
	if len(*list) < 8 {
		fail("a record batch has fewer columns than the schema")
	}
	n := int64(binary.LittleEndian.Uint64(*list))
	*list = (*list)[8:]
	return n
}

// maxRows limits the rows of a column: their bits must have a number.
const maxRows = 1 << 40

// load loads a column, or steps over it.
func (l *loader) load(c *column, read bool) *values {
	v := &values{column: c, rows: next(&l.nodes)}
	nulls := next(&l.nodes)
	if v.rows < 0 || v.rows > maxRows {
		fail("column %q has %d values", c.Name, v.rows)
	}
	if c.layout != nullLayout && c.layout != runsLayout && (c.layout != unionLayout || l.version < arrow.Version5) {
		if bitmap := l.buffer(c, read, 0); nulls != 0 && len(bitmap) > 0 && c.layout != unionLayout {
			v.valid = l.least(c, bitmap, (v.rows+7)/8)
		}
	}
	offset := int64(4)
	if c.wide {
		offset = 8
	}
	switch c.layout {
	case bitLayout:
		v.data = l.buffer(c, read, (v.rows+7)/8)
	case fixedLayout, indexLayout:
		v.data = l.buffer(c, read, v.rows*int64(c.width))
	case bytesLayout, listLayout:
		if v.offsets = l.buffer(c, read, 0); v.rows > 0 && read { // an empty column may have no offset at all
			l.least(c, v.offsets, (v.rows+1)*offset)
		}
		if c.layout == bytesLayout {
			v.data = l.buffer(c, read, 0)
		}
	case viewLayout:
		v.data = l.buffer(c, read, v.rows*viewBytes)
		for n := next(&l.views); n > 0; n-- {
			v.buffers = append(v.buffers, l.buffer(c, read, 0))
		}
	case listViewLayout:
		v.offsets, v.sizes = l.buffer(c, read, v.rows*offset), l.buffer(c, read, v.rows*offset)
	case unionLayout:
		if v.data = l.buffer(c, read, v.rows); c.dense {
			v.offsets = l.buffer(c, read, v.rows*4)
		}
	}
	if c.layout == indexLayout && read {
		var known bool
		if v.from, known = l.dictionaries[c.id]; !known && v.rows > nulls {
			fail("column %q has no dictionary", c.Name)
		}
	} else if c.layout != indexLayout {
		for _, child := range c.children {
			v.children = append(v.children, l.load(child, read))
		}
	}
	return v
}

// least checks the size of a buffer.
func (l *loader) least(c *column, data []byte, size int64) []byte {
	if int64(len(data)) < size {
		fail("column %q has a buffer of %d bytes, not %d", c.Name, len(data), size)
	}
	return data
}

// buffer returns the next buffer, which must have at least the given size; nil if it is not read.
func (l *loader) buffer(c *column, read bool, size int64) []byte {
	at, length := next(&l.buffers), next(&l.buffers)
	switch {
	case !read:
		return nil
	case at < 0 || length < 0 || at > l.body.length || length > l.body.length-at:
		fail("column %q has a buffer outside its record batch", c.Name)
	case length == 0:
		return l.least(c, nil, size)
	case at%arrow.Align != 0:
		fail("column %q has a buffer at byte %d, which is no multiple of %d", c.Name, at, arrow.Align)
	}
	l.take(length)
	data := l.body.read(at, length)
	if l.codec == nil {
		return l.least(c, data, size)
	}
	if len(data) < 8 {
		fail("column %q has a compressed buffer of %d bytes", c.Name, len(data))
	}
	unpacked := next(&data)
	if unpacked == -1 {
		return l.least(c, data, size)
	}
	if unpacked < 0 || unpacked > l.most(data) {
		fail("column %q: %w", c.Name, codec.ErrSize)
	}
	l.take(unpacked)
	result, err := l.codec(make([]byte, unpacked), data)
	if err == nil && int64(len(result)) != unpacked {
		err = codec.ErrSize
	}
	if err != nil {
		fail("column %q: %w", c.Name, err)
	}
	l.take(-length)
	return l.least(c, result, size)
}

// take asks for memory.
func (l *loader) take(n int64) {
	if err := l.reserve(n); err != nil {
		fail("%w", err)
	}
	l.taken += n
}
