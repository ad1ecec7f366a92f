package chunk

import "context"

// Chunk is a run of consecutive records: a byte range of one file. It only describes the
// records; a Reader reads them.
type Chunk struct {
	// File holds the records: the input itself or a spool file.
	File string `json:"file"`
	// Offset and Length are the byte range, from the start of a line to the end of one.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// First is the number of the first record in the whole input, from 0.
	First int64 `json:"first"`
	// Records is the number of records.
	Records int64 `json:"records"`
	// Line is the number of the first line in the whole input, from 1. Blank lines count,
	// because editors count them.
	Line int64 `json:"line"`
	// Inner means that the chunk ends before the source's chunk does. A folder of parts is
	// only cut where the source's chunk ends, however that chunk was split.
	Inner bool `json:"inner,omitempty"`
}

// Before returns the part of c before rest, which is its end.
func (c Chunk) Before(rest Chunk) Chunk {
	return headOf(c, Place{rest.Offset, rest.Line}, rest.First)
}

// Source provides the input as chunks, in order. The chunks of a regular file are byte
// ranges of it. All other input is copied to spool files, and its chunks are ranges of
// those.
//
// Next must not be called concurrently; the other methods may be.
type Source interface {
	// Next returns the next chunk, io.EOF after the last, or the error that ended the
	// input. It blocks while a stream has no data yet.
	Next(ctx context.Context) (Chunk, error)
	// Total returns the number of records in all chunks. While known is false, it is the
	// number found so far.
	Total() (records int64, known bool)
	// Blank returns the number of blank lines found so far: all of them once Next has
	// returned io.EOF.
	Blank() int64
	// Release reports that the bytes of a chunk, or of some of its records, are no longer
	// needed.
	Release(Chunk)
	// Close frees all resources. No chunk may be read afterwards.
	Close() error
}

// Streamed is a source whose Next may have to wait for the writer of the stream.
type Streamed interface {
	Source
	// Ready reports whether Next would return at once.
	Ready() bool
}

// Limits selects which records of the input to use.
type Limits struct {
	// Offset is the number of records to skip.
	Offset int64
	// Limit is the number of records to use after that; 0 means all.
	Limit int64
}

// Size returns the number of records per chunk when n records are split into k chunks: n/k
// by ceiling division, rounded up to whole batches so that no chunk ends with a small one.
// With batch 1 it is ceil(n/k).
func Size(n int64, k, batch int) int64 {
	if n <= 0 {
		return 0
	}
	size := ceilDiv(n, int64(max(k, 1)))
	if batch > 1 && k > 1 {
		size = ceilDiv(size, int64(batch)) * int64(batch)
	}
	return size
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
