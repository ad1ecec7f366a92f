package arrow

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
)

// columns take the memory of a record batch.
const columns = "the columns of the record batch"

// decoder turns messages into record batches, in order. It does not change what it has returned.
type decoder struct {
	schema       *schema
	members      []*column // those that are read, in the order of the lines
	dictionaries map[int64]dictionary
	shared       bool            // a batch has them
	wanted       map[int64]bool  // dictionaries
	taken        map[int64]int64 // their memory
	rows         int64           // that were returned
	batches      int
	blobs        int // values beside each line
}

func newDecoder(m message, o format.Options) (*decoder, error) {
	if m.kind != arrow.SchemaMessage {
		return nil, errors.New("the file does not begin with a schema")
	}
	s, err := newSchema(m.header, m.version)
	if err != nil {
		return nil, err
	}
	members, err := tree.Choose(s.columns, o)
	if err != nil {
		return nil, err
	}
	d := &decoder{schema: s, members: members, dictionaries: make(map[int64]dictionary), wanted: make(map[int64]bool), taken: make(map[int64]int64), blobs: o.Bytes.Values()}
	for i, c := range d.members {
		c.place = i + 1
	}
	d.want(d.members)
	return d, nil
}

// want notes the dictionaries of columns.
func (d *decoder) want(columns []*column) {
	for _, c := range columns {
		if c.layout == indexLayout && !d.wanted[c.id] {
			d.wanted[c.id] = true
			d.want(d.schema.dictionaries[c.id].children)
		}
		d.want(c.children)
	}
}

// addDictionary decodes a dictionary.
func (d *decoder) addDictionary(m message, b body, limit int64) (err error) {
	defer tree.Recovered(&err)
	id, added := m.dictionary()
	c := d.schema.dictionaries[id]
	if c == nil {
		return fmt.Errorf("no column has the dictionary %d", id)
	}
	if !d.wanted[id] {
		return nil
	}
	if d.shared {
		d.dictionaries, d.shared = maps.Clone(d.dictionaries), false
	}
	if !added {
		delete(d.dictionaries, id)
		delete(d.taken, id)
	}
	for _, taken := range d.taken {
		limit -= taken
	}
	l := newLoader(m.batch(), b, m.version, within("the dictionaries", limit))
	l.dictionaries = d.dictionaries
	v := l.load(c, true)
	d.taken[id] += l.taken
	d.dictionaries[id] = d.dictionaries[id].add(v)
	return nil
}

// opened is a record batch that is not loaded yet.
type opened struct {
	decoder
	message message
	body    body
}

// within returns what reserves memory up to a limit.
func within(what string, limit int64) func(int64) error {
	left := limit
	return func(n int64) error {
		if left -= n; left < 0 {
			return fmt.Errorf("%s take more than %d MiB of memory together", what, limit>>20)
		}
		return nil
	}
}

// batch returns the next record batch.
func (d *decoder) batch(m message, b body) *opened {
	d.shared = true
	o := &opened{*d, m, b}
	d.rows += m.rows
	d.batches++
	return o
}

// load loads the columns.
func (o *opened) load(reserve func(int64) error) (b *batch, err error) {
	defer o.name(&err)
	defer tree.Recovered(&err)
	b = &batch{rows: o.message.rows, first: o.rows, members: make([]*values, len(o.members)), blobs: o.blobs}
	l := newLoader(o.message.header, o.body, o.message.version, reserve)
	l.dictionaries = o.dictionaries
	for _, c := range o.schema.columns {
		v := l.load(c, c.place > 0)
		if v.rows != b.rows {
			fail("column %q has %d values for %d rows", c.Name, v.rows, b.rows)
		}
		if c.place > 0 {
			b.members[c.place-1] = v
		}
	}
	b.size = 16
	for _, v := range b.members {
		b.size += int64(len(v.Prefix)) + 16
	}
	b.size += l.taken * 9 / 8 / max(b.rows, 1)
	return b, nil
}

// name says in which record batch something is wrong.
func (o *opened) name(err *error) {
	if *err != nil {
		*err = fmt.Errorf("record batch %d: %w", o.batches, *err)
	}
}

// stream is the lines of a stream that is read from start to end.
type stream struct {
	r       *bufio.Reader
	decoder *decoder
	opened  *opened
	batch   *batch // that is being written; nil for none
	size    int64  // of what was read
	format.Blocks
	beside format.BlobQueue
}

// newStream reads the schema of a stream, or of a file as if it were one.
func newStream(r io.Reader, o format.Options) (*stream, error) {
	s := &stream{r: bufio.NewReaderSize(r, 64<<10)}
	head, _ := s.r.Peek(arrow.Align)
	if isFile(head) {
		_, _ = s.r.Discard(arrow.Align)
	}
	m, _, err := readMessage(s.r)
	switch {
	case err != nil && isFile(head): // polars leaves out what precedes the schema
		return nil, fmt.Errorf("this Arrow file cannot be read as a stream; name the file: %w", err)
	case errors.Is(err, io.EOF):
		return nil, errors.New("the stream has no schema")
	case err != nil:
		return nil, err
	}
	if s.decoder, err = newDecoder(m, o); err != nil {
		return nil, err
	}
	if _, err := readBytes(s.r, m.body); err != nil {
		return nil, err
	}
	s.Next = s.next
	return s, nil
}

// next returns the next lines.
func (s *stream) next() ([]byte, error) {
	for s.batch == nil {
		if err := s.read(); err != nil {
			return nil, err
		}
	}
	block, done, err := s.batch.block()
	s.opened.name(&err)
	if done || err != nil {
		s.batch = nil
	}
	s.beside.Add(block.Blobs...)
	return block.Lines, err
}

// read reads a message: a dictionary, or the next batch.
func (s *stream) read() (err error) {
	m, size, err := readMessage(s.r)
	if err != nil {
		return err
	}
	data, err := readBytes(s.r, m.body)
	if err != nil {
		return err
	}
	s.size += size + m.body
	content := body{data: data, length: m.body}
	switch m.kind {
	case arrow.DictionaryMessage:
		return s.decoder.addDictionary(m, content, parallel.Limit(s.size))
	case arrow.BatchMessage:
		s.opened = s.decoder.batch(m, content)
		s.batch, err = s.opened.load(within(columns, parallel.Limit(s.size)))
		return err
	}
	return fmt.Errorf("a message of the unknown kind %d", m.kind)
}
