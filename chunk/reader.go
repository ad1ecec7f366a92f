package chunk

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/internal/fault"
)

// Record is one line of the input.
type Record struct {
	// Data is the line without its end. It is valid until its batch is released.
	Data []byte
	// Index is the record's number in the whole input, from 0; Line that of its
	// line, from 1.
	Index int64
	Line  int64
	// Offset is where the line starts in the chunk's file.
	Offset int64
	// TooLong: the line is longer than the reader's limit. What does not fit
	// into the batch's buffer is mapped then, not read, so that it may be as
	// long as it likes.
	TooLong bool
}

// Batch is some consecutive records of a chunk with the memory they lie in.
type Batch struct {
	Records []Record

	buffer []byte // the memory's, as far as it is used
	begin  int    // where the first record stands in buffer
	memory Memory // nil: the garbage collector's
	mapped []mapping
	rest   Chunk // what of the chunk comes behind this batch
}

// Memory is where the records of a batch lie.
type Memory interface {
	// Bytes is the memory, always the same.
	Bytes() []byte
	// Free gives it back.
	Free()
}

// Allocator gives memory of at least size bytes, or nil for want of it: the reader
// then takes its own.
type Allocator func(size int) Memory

// reserve makes room for n bytes in all, keeping what is there.
func (b *Batch) reserve(n int, alloc Allocator) {
	if n <= cap(b.buffer) {
		return
	}
	var memory Memory
	if alloc != nil {
		memory = alloc(n)
	}
	var grown []byte
	if memory != nil {
		grown = memory.Bytes()[:len(b.buffer)]
	} else {
		grown = make([]byte, len(b.buffer), n)
	}
	copy(grown, b.buffer)
	if b.memory != nil {
		b.memory.Free()
	}
	b.buffer, b.memory = grown, memory
}

// Rest is the part of the chunk that comes behind this batch: a chunk can be
// ended at any batch border, and the rest given to somebody else.
func (b *Batch) Rest() Chunk { return b.rest }

// Alone is the chunk cut around record i of the batch: what comes before it is
// this worker's, it itself and what comes behind it are somebody else's.
func (b *Batch) Alone(i int) (record, behind Chunk) {
	behind = b.rest
	if i+1 < len(b.Records) {
		behind = b.from(b.Records[i+1])
	}
	return cutBehind(b.from(b.Records[i]), Place{behind.Offset, behind.Line}, behind.First), behind
}

// from is the chunk from a record of the batch on.
func (b *Batch) from(r Record) Chunk {
	c := b.rest
	c.Length += c.Offset - r.Offset
	c.Records += c.First - r.Index
	c.Offset, c.Line, c.First = r.Offset, r.Line, r.Index
	return c
}

// Lines are as many of the records from..to, in order from the first, as lie in
// memory just as they are written out: each with one newline behind it, and nothing
// else between them. n is how many; 0 where the first of them does not.
func (b *Batch) Lines(from, to int) (lines []byte, n int) {
	// The buffer holds, from the first record on, what the file does: what stands
	// between two records there stands between them here. A mapped line has no
	// newline in the buffer, since there it is alone and the buffer empty.
	place := func(i int) int { return b.begin + int(b.Records[i].Offset-b.Records[0].Offset) }
	start := place(from)
	end := start // behind the newline of the last
	for i := from; i < to && place(i) == end; i++ {
		next := end + len(b.Records[i].Data) + 1
		if next > len(b.buffer) || b.buffer[next-1] != '\n' { // the file's last line, or a carriage return
			break
		}
		end, n = next, n+1
	}
	return b.buffer[start:end:end], n
}

// Release gives the memory back; b can be read into again.
func (b *Batch) Release() {
	b.buffer = b.buffer[:0]
	if b.memory != nil {
		b.memory.Free()
		b.buffer, b.memory = nil, nil
	}
	for _, m := range b.mapped {
		m.unmap()
	}
	b.mapped = b.mapped[:0]
	b.Records = b.Records[:0]
}

// Reader reads the records of one chunk, batch by batch.
type Reader struct {
	file      *os.File
	rest      Chunk
	maxRecord int64
	guess     int // bytes that the next batch will want
	alloc     Allocator
	spans     []span
}

// firstRead is the first read of a chunk; a batch's size is guessed from the last one.
const firstRead = 64 << 10

// minRead is the smallest read, and what a batch may be larger than the last one. It is
// a variable so that tests can make it small.
var minRead = 4 << 10

// OpenReader opens a chunk. Lines longer than maxRecord are given as TooLong.
func OpenReader(c Chunk, maxRecord int64) (*Reader, error) {
	file, err := os.Open(c.File)
	if err != nil {
		return nil, fault.New(fault.Storage, "open input: %w", err)
	}
	return &Reader{file: file, rest: c, maxRecord: maxRecord, guess: max(minRead, firstRead)}, nil
}

// AllocateWith lets the records of the batches to come lie in memory of alloc, as
// far as it has any.
func (r *Reader) AllocateWith(alloc Allocator) { r.alloc = alloc }

// Close closes the file; batches stay valid.
func (r *Reader) Close() error { return r.file.Close() }

// Read fills b, which must be released or new, with up to maxRecords records of
// together at most maxBytes, but at least one. At the end of the chunk it
// returns io.EOF. After an error b is released. A file that no longer holds what the chunk says is an error.
func (r *Reader) Read(b *Batch, maxRecords, maxBytes int) error {
	f := filler{reader: r, batch: b, maxRecords: maxRecords, maxBytes: maxBytes, spans: r.spans[:0]}
	err := f.fill()
	r.spans = f.spans
	if err != nil {
		b.Release()
		return fault.New(fault.Storage, "read input %s: %w", r.rest.File, err)
	}
	b.rest = r.rest
	if left := r.rest.Records; left < 0 || left > 0 && len(b.Records) == 0 {
		b.Release()
		return r.changed(left)
	}
	if len(b.Records) == 0 {
		b.Release() // blank lines lie there
		return io.EOF
	}
	r.guess = f.used + f.used/16 + minRead
	return nil
}

// changed is the failure of a file that does not hold the records it held.
func (r *Reader) changed(left int64) error {
	what := "missing"
	if left < 0 {
		what, left = "too many", -left
	}
	return fault.New(fault.Storage, "input %s changed while it was read: %d records are %s at byte %d",
		r.rest.File, left, what, r.rest.Offset)
}

// filler is one Read. The buffer may move while it grows, so records are noted
// as positions and get their bytes at the end.
type filler struct {
	reader     *Reader
	batch      *Batch
	maxRecords int
	maxBytes   int

	buffer []byte // the batch's: used bytes, then read ones
	used   int    // up to here lines have been taken
	spans  []span
}

type span struct {
	start, end int
	mapped     []byte
}

func (f *filler) fill() error {
	r := f.reader
	f.buffer = f.batch.buffer[:0]
	defer f.finish()
	scanned := 0 // there is no newline in buffer[used:scanned]
	for len(f.spans) < f.maxRecords && r.rest.Length > 0 {
		if newline := bytes.IndexByte(f.buffer[scanned:], '\n'); newline >= 0 {
			end := scanned + newline
			if !f.take(end, end+1) {
				return nil
			}
			scanned = f.used
			continue
		}
		begun := int64(len(f.buffer) - f.used) // of the line at used
		unread := r.rest.Length - begun
		switch {
		case begun-1 > r.maxRecord: // one more for the carriage return
			more, err := f.takeLong()
			if err != nil || !more {
				return err
			}
			scanned = f.used
		case unread > 0:
			if err := f.readMore(unread); err != nil {
				return err
			}
			scanned = f.used + int(begun)
		default: // the last line has no newline
			if !f.take(len(f.buffer), len(f.buffer)) {
				return nil
			}
			scanned = f.used
		}
	}
	return nil
}

// readMore appends to the buffer what lies behind it in the file. Blank lines
// before the first record are forgotten, however many there are.
func (f *filler) readMore(unread int64) error {
	if len(f.spans) == 0 && f.used > 0 {
		f.buffer = f.buffer[:copy(f.buffer, f.buffer[f.used:])]
		f.used = 0
	}
	want := int(min(int64(max(f.reader.guess, len(f.buffer)-f.used, minRead)), unread))
	if cap(f.buffer)-len(f.buffer) < want {
		f.batch.buffer = f.buffer
		f.batch.reserve(max(len(f.buffer)+want, 2*cap(f.buffer)), f.reader.alloc)
		f.buffer = f.batch.buffer
	}
	from := f.reader.rest.Offset + int64(len(f.buffer)-f.used)
	room := f.buffer[len(f.buffer) : len(f.buffer)+want]
	n := readCached(f.reader.file, room, from)
	var err error
	if n < want {
		var more int
		more, err = readAt(f.reader.file, room[n:], from+int64(n))
		n += more
	}
	f.buffer = f.buffer[:len(f.buffer)+n]
	return err
}

// take takes the line buffer[used:end]; next is where the following one starts.
// It reports false, and takes nothing, if the batch is full.
func (f *filler) take(end, next int) bool {
	start := f.used
	line := trimReturn(f.buffer[start:end])
	blank := isBlankLine(line)
	if len(f.spans) > 0 && end > f.maxBytes {
		return false
	}
	offset := f.reader.rest.Offset
	f.advance(int64(next-start), blank)
	f.used = next
	if !blank {
		f.note(span{start: start, end: start + len(line)}, offset, int64(len(line)) > f.reader.maxRecord)
	}
	return true
}

// takeLong takes the line at used, of which the buffer holds only a beginning,
// by mapping it. It stands in a batch of its own: if there are records already
// it begins the next batch. It reports whether this batch may go on.
func (f *filler) takeLong() (bool, error) {
	if len(f.spans) > 0 {
		return false, nil
	}
	r := f.reader
	length, err := f.lineLength()
	if err != nil {
		return false, err
	}
	m, err := mapFile(r.file, r.rest.Offset, length)
	if err != nil {
		return false, fmt.Errorf("map a line of %d bytes: %w", length, err)
	}
	line := trimReturn(bytes.TrimSuffix(m.data, []byte("\n")))
	blank := isBlankLine(line)
	offset := r.rest.Offset
	f.advance(length, blank)
	f.buffer, f.used = f.buffer[:0], 0
	if blank {
		m.unmap()
		return true, nil
	}
	f.batch.mapped = append(f.batch.mapped, m)
	f.note(span{mapped: line}, offset, true)
	return false, nil
}

// lineLength finds the end of the line at the reader's position.
func (f *filler) lineLength() (int64, error) {
	r := f.reader
	buffer := make([]byte, 1<<20)
	for done := int64(0); done < r.rest.Length; {
		n, err := readAt(r.file, buffer[:min(int64(len(buffer)), r.rest.Length-done)], r.rest.Offset+done)
		if err != nil {
			return 0, err
		}
		if newline := bytes.IndexByte(buffer[:n], '\n'); newline >= 0 {
			return done + int64(newline) + 1, nil
		}
		done += int64(n)
	}
	return r.rest.Length, nil
}

// advance moves the reader past a line.
func (f *filler) advance(bytes int64, blank bool) {
	rest := &f.reader.rest
	rest.Offset += bytes
	rest.Length -= bytes
	rest.Line++
	if !blank {
		rest.First++
		rest.Records--
	}
}

func (f *filler) note(s span, offset int64, tooLong bool) {
	rest := f.reader.rest
	f.spans = append(f.spans, s)
	f.batch.Records = append(f.batch.Records, Record{
		Index: rest.First - 1, Line: rest.Line - 1, Offset: offset, TooLong: tooLong,
	})
}

// finish gives the records their bytes.
func (f *filler) finish() {
	f.batch.buffer, f.batch.begin = f.buffer, 0
	if len(f.spans) > 0 {
		f.batch.begin = f.spans[0].start
	}
	for i, s := range f.spans {
		if s.mapped != nil {
			f.batch.Records[i].Data = s.mapped
		} else {
			f.batch.Records[i].Data = f.buffer[s.start:s.end:s.end]
		}
	}
}

func trimReturn(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\r")) }

func isBlankLine(line []byte) bool {
	for _, ch := range line {
		if !isBlank(ch) {
			return false
		}
	}
	return true
}
