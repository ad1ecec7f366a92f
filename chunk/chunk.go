package chunk

import "context"

// Chunk is a run of consecutive records: bytes of one file. It is a description;
// the records are read by whoever gets it.
type Chunk struct {
	// File holds the records: the input itself, or a spool file.
	File string `json:"file"`
	// Offset and Length are the bytes, from the start of a line to the end of one.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// First is the number of the first record in the whole input, from 0.
	First int64 `json:"first"`
	// Records is how many there are.
	Records int64 `json:"records"`
	// Line is the number of the first line in the whole input, from 1: blank
	// lines count, since people count them.
	Line int64 `json:"line"`
	// Inner: it ends before the chunk that the source gave does. A folder of parts
	// is cut where that one ends, whatever happened to it in between.
	Inner bool `json:"inner,omitempty"`
}

// Before is what of c comes before its end, rest.
func (c Chunk) Before(rest Chunk) Chunk {
	return cutBehind(c, Place{rest.Offset, rest.Line}, rest.First)
}

// Source gives the input as chunks, in order. A regular file is addressable: its
// chunks are byte ranges of it. Everything else is streamed into spool files,
// and its chunks are ranges of those.
//
// Next is called by one goroutine at a time; the other methods by any.
type Source interface {
	// Next returns the next chunk, io.EOF after the last, or the reason why
	// there is no more. It blocks while a stream has nothing yet.
	Next(ctx context.Context) (Chunk, error)
	// Total returns the number of records in all chunks; with false, as long as
	// that is not known, the number of those that were found so far.
	Total() (records int64, known bool)
	// Blank returns the number of blank lines found so far; all of them once
	// Next has returned io.EOF.
	Blank() int64
	// Release says that the bytes of a chunk, or of so many records of it, are
	// no longer needed.
	Release(Chunk)
	// Close frees everything. No chunk may be read afterwards.
	Close() error
}

// Streamed is a source whose Next may have to wait for whoever writes the stream.
type Streamed interface {
	Source
	// Ready reports whether Next would return at once.
	Ready() bool
}

// Limits is what of the input is used.
type Limits struct {
	// Offset is the number of records to pass over.
	Offset int64
	// Limit is the number of records to use after that; 0 means all.
	Limit int64
}

// Size is the number of records in each chunk when n records are cut into k
// chunks: n/k by ceiling division, rounded up to whole batches so that no chunk
// ends in a small one. With batch 1 it is the plain ceil(n/k).
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
