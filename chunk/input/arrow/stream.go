package arrow

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

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
	options      format.Options
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
	d := &decoder{schema: s, options: o, members: members, dictionaries: make(map[int64]dictionary), wanted: make(map[int64]bool), taken: make(map[int64]int64), blobs: o.Bytes.Values()}
	for i, c := range d.members {
		c.place = i + 1
	}
	d.want(d.members)
	return d, nil
}

// follow returns the decoder of a stream that follows this one, whose schema the message is. Both must
// have the same columns.
func (d *decoder) follow(m message) (*decoder, error) {
	next, err := newDecoder(m, d.options)
	switch {
	case err != nil:
		return nil, fmt.Errorf("another stream follows: %w", err)
	case !slices.Equal(tree.Describe(next.schema.columns, next.schema.said), tree.Describe(d.schema.columns, d.schema.said)):
		return nil, errors.New("another stream follows, whose columns are different")
	}
	next.rows, next.batches = d.rows, d.batches
	return next, nil
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

// check refuses a message of an unknown kind, and a record batch whose columns have other numbers of
// values than it has rows.
func (d *decoder) check(m message) (err error) {
	defer tree.Recovered(&err)
	switch m.kind {
	case arrow.SchemaMessage, arrow.DictionaryMessage:
		return nil
	case arrow.BatchMessage:
	default:
		return fmt.Errorf("a message of the unknown kind %d", m.kind)
	}
	nodes := m.header.Structs(1, arrow.NodeBytes)
	for _, c := range d.schema.columns {
		if rows := next(&nodes); rows != m.rows {
			fail("column %q has %d values for %d rows", c.Name, rows, m.rows)
		}
		for skip := 2*c.fields() - 1; skip > 0; skip-- {
			next(&nodes)
		}
	}
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
		if v := l.load(c, c.place > 0); c.place > 0 {
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
	isFile  bool // which ends with a footer
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
	if s.isFile = isFile(head); s.isFile {
		_, _ = s.r.Discard(arrow.Align)
	}
	m, _, err := s.message()
	switch {
	case err != nil && s.isFile: // polars leaves out what precedes the schema
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

// message reads the next message.
func (s *stream) message() (m message, size int64, err error) {
	if !s.isFile {
		return readMessage(s.r)
	}
	if m, size, err = readOne(s.r); err == errEnd {
		err = s.footer()
	}
	return m, size, err
}

// maxPadding is how many bytes may precede the footer of a file.
const maxPadding = 64

// footer reads what follows the messages of a file, and returns io.EOF. It refuses more than the footer:
// the rows of another file would be lost.
func (s *stream) footer() error {
	const end = 4 + len(arrow.Magic)
	var tail []byte
	size := int64(-end)
	for buffer := make([]byte, 4<<10); ; {
		n, err := s.r.Read(buffer)
		size += int64(n)
		tail = append(tail, buffer[:n]...)
		tail = tail[max(0, len(tail)-end):]
		switch {
		case err == nil:
			continue
		case err != io.EOF:
			return err
		case size < 0 || !bytes.HasSuffix(tail, []byte(arrow.Magic)):
			return errors.New("the file is truncated: it does not end with " + arrow.Magic)
		}
		if padding := size - int64(binary.LittleEndian.Uint32(tail)); padding < 0 || padding > maxPadding {
			return errors.New("the stream continues after the end of an Arrow file; name the files instead")
		}
		return io.EOF
	}
}

// read reads a message: the schema of another stream, a dictionary, or the next batch.
func (s *stream) read() (err error) {
	m, size, err := s.message()
	if err != nil {
		return err
	}
	data, err := readBytes(s.r, m.body)
	if err != nil {
		return err
	}
	s.size += size + m.body
	if err := s.decoder.check(m); err != nil {
		return err
	}
	content := body{data: data, length: m.body}
	switch m.kind {
	case arrow.SchemaMessage:
		next, err := s.decoder.follow(m)
		if err == nil {
			s.decoder = next
		}
		return err
	case arrow.DictionaryMessage:
		return s.decoder.addDictionary(m, content, parallel.Limit(s.size))
	case arrow.BatchMessage:
		s.opened = s.decoder.batch(m, content)
		s.batch, err = s.opened.load(within(columns, parallel.Limit(s.size)))
		return err
	}
	return nil
}
