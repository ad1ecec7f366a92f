package input

import (
	"github.com/gpurun/gpurun/chunk"
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
type Memory = interface {
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
	c.Preceding -= c.First - r.Index
	c.Offset, c.Line, c.First = r.Offset, r.Line, r.Index
	return c
}

// place returns where a record is in the buffer. From the first record on, the buffer mirrors the
// file, so the distance between two records is the same in both. A mapped line has no newline in the
// buffer, because it is alone in its batch and the buffer is empty.
func (b *Batch) place(i int) int { return b.begin + int(b.Records[i].Offset-b.Records[0].Offset) }

// Lines returns as many of the records from..to, in order, as lie in memory exactly as they
// are written out: each followed by one newline, with nothing between them. n is their
// number, 0 if the first record does not.
func (b *Batch) Lines(from, to int) (lines []byte, n int) {
	start := b.place(from)
	end := start // after the newline of the last
	for i := from; i < to && b.place(i) == end; i++ {
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
	b.mapped, b.Records, b.begin = b.mapped[:0], b.Records[:0], 0
}
