package input

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Record is one line of the input.
type Record struct {
	// Data is the line without its end. It is valid until its batch is released.
	Data []byte
	// Index is the record's number in the whole input, from 0; Line is its line number,
	// from 1.
	Index int64
	Line  int64
	// Offset is where the line starts in the chunk's file.
	Offset int64
	// TooLong: the line exceeds the reader's limit. If it does not fit in the batch's
	// buffer, it is mapped instead of read, so it may have any length.
	TooLong bool
}

// Batch is a group of consecutive records of a chunk and the memory that holds them.
type Batch struct {
	Records []Record

	buffer []byte // the used part of memory
	begin  int    // offset of the first record in buffer
	memory Memory // nil: garbage-collected memory
	mapped []files.Mapping
	rest   chunk.Chunk // what remains of the chunk after this batch
}

// Memory holds the records of a batch.
type Memory interface {
	// Bytes returns the memory, always the same slice.
	Bytes() []byte
	// Free releases it.
	Free()
}

// Allocator returns memory of at least size bytes, or nil if it has none; the reader then
// allocates its own.
type Allocator func(size int) Memory

// reserve grows the buffer to n bytes in all and keeps its content.
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

// Rest returns what remains of the chunk after this batch. A chunk can end at any batch
// border and its rest be given to another worker.
func (b *Batch) Rest() chunk.Chunk { return b.rest }

// Alone splits the chunk around record i of the batch: it returns the record itself and
// what follows it. What precedes it stays with this worker.
func (b *Batch) Alone(i int) (record, after chunk.Chunk) {
	after = b.rest
	if i+1 < len(b.Records) {
		after = b.from(b.Records[i+1])
	}
	return b.from(b.Records[i]).Head(after.Start(), after.First), after
}

// From returns what remains of the chunk from record i of the batch on.
func (b *Batch) From(i int) chunk.Chunk { return b.from(b.Records[i]) }

// from returns the chunk starting at a record of the batch.
func (b *Batch) from(r Record) chunk.Chunk {
	c := b.rest
	c.Length += c.Offset - r.Offset
	c.Records += c.First - r.Index
	c.Offset, c.Line, c.First = r.Offset, r.Line, r.Index
	return c
}

// Lines returns as many of the records from..to, in order, as lie in memory exactly as they
// are written out: each followed by one newline, with nothing between them. n is their
// number, 0 if the first record does not.
func (b *Batch) Lines(from, to int) (lines []byte, n int) {
	// From the first record on, the buffer mirrors the file, so the distance between two
	// records is the same in both. A mapped line has no newline in the buffer, because it
	// is alone in its batch and the buffer is empty.
	place := func(i int) int { return b.begin + int(b.Records[i].Offset-b.Records[0].Offset) }
	start := place(from)
	end := start // after the newline of the last
	for i := from; i < to && place(i) == end; i++ {
		next := end + len(b.Records[i].Data) + 1
		if next > len(b.buffer) || b.buffer[next-1] != '\n' { // the file's last line, or a carriage return
			break
		}
		end, n = next, n+1
	}
	return b.buffer[start:end:end], n
}

// Release frees the memory. b can be read into again.
func (b *Batch) Release() {
	b.buffer = b.buffer[:0]
	if b.memory != nil {
		b.memory.Free()
		b.buffer, b.memory = nil, nil
	}
	for _, m := range b.mapped {
		m.Unmap()
	}
	b.mapped = b.mapped[:0]
	b.Records = b.Records[:0]
}

// Reader reads the records of one chunk, batch by batch.
type Reader struct {
	file      *os.File
	rest      chunk.Chunk
	maxRecord int64
	guess     int // estimated bytes of the next batch
	alloc     Allocator
	spans     []span
}

// firstRead is the size of a chunk's first read. Later sizes are estimated from the
// previous batch.
const firstRead = 64 << 10

// minRead is the smallest read, and how much larger than the previous one a batch is
// expected to be. It is a variable so that tests can lower it.
var minRead = 4 << 10

// OpenReader opens a chunk. Lines longer than maxRecord are returned as TooLong.
func OpenReader(c chunk.Chunk, maxRecord int64) (*Reader, error) {
	file, err := os.Open(c.File)
	if err != nil {
		return nil, fault.New(fault.Storage, "open input: %w", err)
	}
	return &Reader{file: file, rest: c, maxRecord: maxRecord, guess: max(minRead, firstRead)}, nil
}

// AllocateWith makes the reader place further batches in memory from alloc, if it has any.
func (r *Reader) AllocateWith(alloc Allocator) { r.alloc = alloc }

// Close closes the file. Batches stay valid.
func (r *Reader) Close() error { return r.file.Close() }

// Read fills b, which must be new or released, with up to maxRecords records of at most
// maxBytes in total, but at least one. At the end of the chunk it returns io.EOF. After an
// error b is released. A file that no longer matches the chunk is an error.
func (r *Reader) Read(b *Batch, maxRecords, maxBytes int) error {
	f := filler{reader: r, batch: b, maxRecords: maxRecords, maxBytes: maxBytes, spans: r.spans[:0]}
	err := f.fill()
	r.spans = f.spans
	if err != nil {
		b.Release()
		return fault.New(fault.Storage, "read input %s: %w", r.rest.File, err)
	}
	b.rest = r.rest
	if unread := r.rest.Records; unread < 0 || unread > 0 && len(b.Records) == 0 {
		b.Release()
		return r.changed(unread)
	}
	if len(b.Records) == 0 {
		b.Release() // it may hold blank lines
		return io.EOF
	}
	r.guess = f.used + f.used/16 + minRead
	return nil
}

// changed returns the fault of a file that no longer holds the same records.
func (r *Reader) changed(unread int64) error {
	what := "missing"
	if unread < 0 {
		what, unread = "too many", -unread
	}
	return fault.New(fault.Storage, "input %s changed while it was being read: %d records are %s at byte %d",
		r.rest.File, unread, what, r.rest.Offset)
}

// filler is one call of Read. The buffer may move while it grows, so records are kept as
// positions and get their bytes at the end.
type filler struct {
	reader     *Reader
	batch      *Batch
	maxRecords int
	maxBytes   int

	buffer []byte // the batch's: used bytes, then unused ones
	used   int    // lines up to here have been taken
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
	scanned := 0 // buffer[used:scanned] has no newline
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

// readMore appends the next bytes of the file to the buffer. It discards blank lines before
// the first record, however many there are.
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

// take takes the line buffer[used:end]; next is where the following line starts. If the
// batch is full, it takes nothing and returns false.
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

// takeLong maps the line at used, of which the buffer holds only the beginning. Such a line
// gets its own batch: if this batch already has records, the line begins the next one. It
// reports whether this batch may continue.
func (f *filler) takeLong() (bool, error) {
	if len(f.spans) > 0 {
		return false, nil
	}
	r := f.reader
	length, err := f.lineLength()
	if err != nil {
		return false, err
	}
	m, err := files.Map(r.file, r.rest.Offset, length)
	if err != nil {
		return false, fmt.Errorf("map a line of %d bytes: %w", length, err)
	}
	line := trimReturn(bytes.TrimSuffix(m.Data, []byte("\n")))
	blank := isBlankLine(line)
	offset := r.rest.Offset
	f.advance(length, blank)
	f.buffer, f.used = f.buffer[:0], 0
	if blank {
		m.Unmap()
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

// finish sets the bytes of the records.
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
