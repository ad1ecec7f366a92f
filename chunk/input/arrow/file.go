package arrow

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
)

// File is an open Arrow file, or a stream in a file. Its methods may be called concurrently.
type File struct {
	reader  io.ReaderAt
	size    int64
	decoder *decoder // before the first message
	blocks  []block
	rows    int64
	threads int
	memory  int64 // that decoding may take
}

// block is where a message is.
type block struct {
	at   int64
	meta int64 // bytes before the body
	rows int64 // of a record batch
	kind int
}

// OpenFile reads the descriptions of all messages of a file.
func OpenFile(r io.ReaderAt, size int64, o format.Options) (f *File, err error) {
	defer tree.Recovered(&err)
	f = &File{reader: r, size: size, threads: max(o.Threads, 1), memory: parallel.Limit(size)}
	head := make([]byte, min(size, arrow.Align))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if isFile(head) {
		err = f.readFooter(o)
	} else {
		err = f.scan(o)
	}
	return f, err
}

// scan finds the messages of a stream.
func (f *File) scan(o format.Options) error {
	var d *decoder
	for at := int64(0); ; {
		m, meta, err := f.message(at)
		if errors.Is(err, io.EOF) && d != nil {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the file has no schema")
		case err != nil:
			return err
		case m.body > f.size-at-meta:
			return errTruncated
		case d == nil:
			d, err = newDecoder(m, o)
			f.decoder = d
		case m.kind == arrow.SchemaMessage:
			if d, err = d.follow(m); err == nil {
				err = f.add(d, at, meta, m)
			}
		default:
			err = f.add(d, at, meta, m)
		}
		if err != nil {
			return err
		}
		at += meta + m.body
	}
}

// message reads the message at a place, without its body.
func (f *File) message(at int64) (m message, meta int64, err error) {
	return readMessage(bufio.NewReaderSize(io.NewSectionReader(f.reader, at, f.size-at), 1<<10))
}

// add adds the next message, which a decoder of its schema will decode.
func (f *File) add(d *decoder, at, meta int64, m message) error {
	if err := d.check(m); err != nil {
		return err
	}
	if m.rows > math.MaxInt64-f.rows {
		return errors.New("the numbers of rows overflow")
	}
	f.rows += m.rows
	f.blocks = append(f.blocks, block{at, meta, m.rows, m.kind})
	return nil
}

// readFooter finds the messages of a file, all of whose dictionaries precede its batches.
func (f *File) readFooter(o format.Options) error {
	footer, err := arrow.ReadFooter(f.reader, f.size)
	if err != nil {
		return err
	}
	table, _ := footer.Table(1)
	if f.decoder, err = newDecoder(message{kind: arrow.SchemaMessage, version: footer.Int(0, 2, 0), header: table}, o); err != nil {
		return err
	}
	if err := f.place(footer.Structs(2, arrow.BlockBytes), arrow.DictionaryMessage); err != nil {
		return err
	}
	return f.place(footer.Structs(3, arrow.BlockBytes), arrow.BatchMessage)
}

// place finds the messages of a kind.
func (f *File) place(blocks []byte, kind int) error {
	for i := 0; len(blocks) > 0; i++ {
		at := int64(binary.LittleEndian.Uint64(blocks))
		blocks = blocks[arrow.BlockBytes:]
		if at < 0 || at > f.size {
			return fmt.Errorf("the file is damaged: a message is at %d", at)
		}
		m, meta, err := f.message(at)
		switch {
		case errors.Is(err, io.EOF):
			return errTruncated
		case err != nil:
			return fmt.Errorf("message %d: %w", i, err)
		case m.kind != kind:
			return fmt.Errorf("the file is damaged: message %d is of kind %d, not %d", i, m.kind, kind)
		case m.body > f.size-at-meta:
			return errTruncated
		}
		if err := f.add(f.decoder, at, meta, m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// Count returns the number of rows.
func (f *File) Count() int64 { return f.rows }

// Columns returns the columns that are read, with their types.
func (f *File) Columns() []format.Column { return f.decoder.columns() }

func (d *decoder) columns() []format.Column { return tree.Describe(d.members, d.schema.said) }

// Lines returns the rows as JSON lines, in order, without the record batches that are skipped.
// Batches are decoded in parallel, ahead of the reader. An error names the batch and, where it is
// known, row and column.
func (f *File) Lines(ctx context.Context, skip int64) format.Lines {
	r := &reader{File: f, decoder: *f.decoder, skip: skip}
	r.decoder.taken, r.decoder.dictionaries = make(map[int64]int64), make(map[int64]dictionary)
	skipped := int64(0)
	for _, b := range f.blocks {
		if b.kind == arrow.BatchMessage {
			if skipped+b.rows > skip {
				break
			}
			skipped += b.rows
		}
	}
	return parallel.Lines(ctx, parallel.Limits{Threads: f.threads, What: columns, Memory: f.memory}, r.group).After(skipped, f.decoder.blobs)
}

// reader reads the messages of a file in order.
type reader struct {
	*File
	decoder decoder
	skip    int64 // rows
	at      int   // the next message
}

// groupBytes is how many bytes of a file are decoded together, in batches that may be small.
const groupBytes = 4 << 20

// group returns the next record batches, up to a dictionary.
func (r *reader) group() (parallel.Group, error) {
	var group batches
	for size := int64(0); r.at < len(r.blocks) && size < groupBytes; r.at++ {
		b := r.blocks[r.at]
		if b.kind == arrow.BatchMessage && b.rows > 0 && r.decoder.rows+b.rows <= r.skip {
			r.decoder.rows, r.decoder.batches = r.decoder.rows+b.rows, r.decoder.batches+1
			continue
		}
		if b.kind != arrow.BatchMessage && len(group) > 0 {
			break
		}
		m, _, err := r.message(b.at)
		if err != nil {
			return nil, truncated(err)
		}
		content := body{reader: r.reader, at: b.at + b.meta, length: m.body}
		switch {
		case m.kind != b.kind || m.rows != b.rows:
			return nil, errors.New("the file changed while it was read")
		case b.kind == arrow.SchemaMessage:
			d, err := r.decoder.follow(m)
			if err != nil {
				return nil, err
			}
			r.decoder = *d
		case b.kind == arrow.BatchMessage:
			group = append(group, r.decoder.batch(m, content))
			size += b.meta + m.body
		case b.kind == arrow.DictionaryMessage:
			if err := r.decoder.addDictionary(m, content, r.memory); err != nil {
				return nil, err
			}
		}
	}
	if len(group) == 0 {
		return nil, io.EOF
	}
	return group.write, nil
}

// batches are consecutive record batches.
type batches []*opened

// write writes the lines of the batches, one after another.
func (list batches) write(_ context.Context, share *parallel.Share, send func(parallel.Block) error) error {
	var memory scratch
	for _, o := range list {
		memory.free = memory.all
		o.body.scratch = &memory
		taken := int64(0)
		b, err := o.load(func(n int64) error { taken += n; return share.Add(n) })
		for done := false; !done && err == nil; {
			var block parallel.Block
			if block, done, err = b.block(); err == nil {
				err = send(block)
			} else {
				o.name(&err)
			}
		}
		if err != nil {
			return err
		}
		_ = share.Add(-taken) // which cannot fail
	}
	return nil
}
