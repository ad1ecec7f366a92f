package input

import (
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Reader reads the records of one chunk, batch by batch.
type Reader struct {
	file      *os.File
	rest      chunk.Chunk
	maxRecord int64
	guess     int // estimated bytes of the next batch
	alloc     Allocator
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
		return nil, fault.NoSuchInput.Of(fault.Storage, "open input: %w", err)
	}
	return &Reader{file: file, rest: c, maxRecord: maxRecord, guess: max(minRead, firstRead)}, nil
}

// AllocateWith makes the reader place further batches in memory from alloc, if it has any.
func (r *Reader) AllocateWith(alloc Allocator) { r.alloc = alloc }

// Rest returns what is not read yet of the chunk.
func (r *Reader) Rest() chunk.Chunk { return r.rest }

// Close closes the file. Batches stay valid.
func (r *Reader) Close() error { return r.file.Close() }

// Read fills b, which must be new or released, with up to maxRecords records of at most
// maxBytes in total, but at least one. At the end of the chunk it returns io.EOF. After an
// error b is released. A file that no longer matches the chunk is an error.
func (r *Reader) Read(b *Batch, maxRecords, maxBytes int) error {
	f := filler{reader: r, batch: b, maxRecords: maxRecords, maxBytes: maxBytes}
	if err := f.fill(); err != nil {
		b.Release()
		return fault.InputUnreadable.New("read input %s: %w", r.rest.File, err)
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
	return fault.InputChanged.Of(fault.Storage, "input %s changed while it was being read: %d records are %s at byte %d",
		r.rest.File, unread, what, r.rest.Offset)
}
