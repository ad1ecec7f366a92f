package input

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Values of bytes do not go through JSON. They are in a file beside the spool file of their lines:
// for each record its values in order, each after 8 bytes with its kind and the length of its bytes, and
// 8 with the length of its path. A record is found by its number in the spool file, so nothing in its
// line can refer to other bytes.

const (
	blobHead = 16
	kindBits = 3
)

// BlobWriter writes the blobs of records. The methods of nil do nothing.
type BlobWriter struct {
	each int         // blobs of a record
	to   WrittenFile // not created for a chunk that is only compared
	head []byte
}

// CreateBlobs creates a file of blobs, of which each record has the same number.
func CreateBlobs(path string, each int) (*BlobWriter, error) {
	b := &BlobWriter{each: each}
	return b, b.open(path)
}

// open creates the file.
func (b *BlobWriter) open(path string) error {
	if b == nil {
		return nil
	}
	return b.to.Create(path)
}

// Add adds the blobs of a record, nulls if there are none.
func (b *BlobWriter) Add(blobs []format.Blob) error {
	if b == nil {
		return nil
	}
	for k := range b.each {
		var one format.Blob
		if k < len(blobs) {
			one = blobs[k]
		}
		b.head = binary.LittleEndian.AppendUint64(b.head[:0], uint64(len(one.Data))<<kindBits|uint64(one.Kind))
		b.head = binary.LittleEndian.AppendUint64(b.head, uint64(len(one.Path)))
		for _, data := range [][]byte{b.head, one.Data, one.Path} {
			if _, err := b.to.Write(data); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum returns the checksum of the file.
func (b *BlobWriter) sum() chunk.FileSum {
	if b == nil {
		return chunk.FileSum{}
	}
	return b.to.Sum
}

// Close closes the file, after making it durable.
func (b *BlobWriter) Close(durable bool) error {
	if b == nil {
		return nil
	}
	return b.to.Close(durable)
}

// spooled reports whether a spool file, and the file of its blobs, are as the log says.
func (c loggedChunk) spooled(ctx context.Context, path string) bool {
	if sum, err := chunk.SumFile(ctx, path); err != nil || sum != c.FileSum {
		return false
	}
	if c.Blobs.Bytes == 0 {
		return true
	}
	sum, err := chunk.SumFile(ctx, chunk.Chunk{File: path}.BlobFile())
	return err == nil && sum == c.Blobs
}

// BlobAt is where a blob is in its file.
type BlobAt struct {
	Kind       format.BlobKind
	Data, Path Span
}

// IsNull reports whether the value is null.
func (b BlobAt) IsNull() bool { return b.Kind == format.NullBlob }

// Span is a place in a file.
type Span struct{ Offset, Length int64 }

// end is where it ends.
func (s Span) end() int64 { return s.Offset + s.Length }

// Blobs finds the blobs of a chunk's records. Only ReadAt and ReadSpan are safe for concurrent use.
type Blobs struct {
	file  *os.File // nil until it is needed
	size  int64    // of the file
	chunk chunk.Chunk
	next  int64 // the record at offset, counted from the start of the file
	at    int64
	found []BlobAt
}

// NewBlobs finds the blobs of a chunk, whose records have this many each. If the chunk has none,
// they are null. The first call of Of opens the file.
func NewBlobs(c chunk.Chunk, each int) *Blobs { return &Blobs{chunk: c, found: make([]BlobAt, each)} }

// open opens the file, once.
func (b *Blobs) open() (err error) {
	switch {
	case b.file != nil:
		return nil
	case len(b.found) != b.chunk.Blobs:
		return fault.InputChanged.Of(fault.Storage, "the records of %s have %d values beside their lines, not %d", b.chunk.File, b.chunk.Blobs, len(b.found))
	}
	if b.file, err = os.Open(b.chunk.BlobFile()); err != nil {
		return fault.NoSuchInput.Of(fault.Storage, "open input: %w", err)
	}
	info, err := b.file.Stat()
	if err != nil {
		return fault.InputUnreadable.Wrap(err)
	}
	b.size = info.Size()
	return nil
}

// Of returns the blobs of a record, which are valid until the next call.
func (b *Blobs) Of(record int64) ([]BlobAt, error) {
	if b.chunk.Blobs == 0 {
		return b.found, nil
	}
	if err := b.open(); err != nil {
		return nil, err
	}
	number := b.chunk.Preceding + record - b.chunk.First
	if number < b.next {
		b.next, b.at = 0, 0
	}
	for ; b.next <= number; b.next++ {
		for k := range b.found {
			var head [blobHead]byte
			if _, err := b.file.ReadAt(head[:], b.at); err != nil {
				return nil, b.damaged(err)
			}
			value, path := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
			data, left := Span{b.at + blobHead, int64(value >> kindBits)}, b.size-b.at-blobHead
			if data.Length > left || path > uint64(left-data.Length) {
				return nil, b.damaged(io.ErrUnexpectedEOF)
			}
			b.found[k] = BlobAt{Kind: format.BlobKind(value & (1<<kindBits - 1)), Data: data, Path: Span{data.end(), int64(path)}}
			b.at = b.found[k].Path.end()
		}
	}
	return b.found, nil
}

// Read returns the blobs of a record with their data.
func (b *Blobs) Read(record int64) ([]format.Blob, error) {
	places, err := b.Of(record)
	if err != nil {
		return nil, err
	}
	blobs := make([]format.Blob, len(places))
	for k, at := range places {
		blobs[k] = format.Blob{Kind: at.Kind, Data: make([]byte, at.Data.Length), Path: make([]byte, at.Path.Length)}
		if err := cmp.Or(b.ReadSpan(blobs[k].Data, at.Data), b.ReadSpan(blobs[k].Path, at.Path)); err != nil {
			return nil, err
		}
	}
	return blobs, nil
}

// ReadSpan reads bytes of the file into dst, which has the length of the span.
func (b *Blobs) ReadSpan(dst []byte, s Span) error {
	if len(dst) == 0 {
		return nil
	}
	if _, err := b.file.ReadAt(dst, s.Offset); err != nil {
		return b.damaged(err)
	}
	return nil
}

// ReadAt reads bytes of the file.
func (b *Blobs) ReadAt(p []byte, at int64) (int, error) { return b.file.ReadAt(p, at) }

func (b *Blobs) damaged(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fault.InputChanged.Of(fault.Storage, "read input %s: %w", b.chunk.BlobFile(), err)
}

// Close closes the file.
func (b *Blobs) Close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}
