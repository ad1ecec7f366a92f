package input

import (
	"context"
	"io"

	"github.com/gpurun/gpurun/chunk"
)

// Source provides the input as chunks, in order. The chunks of a regular file are byte
// ranges of it. All other input is copied to spool files, and its chunks are ranges of
// those.
//
// Next must not be called concurrently; the other methods may be.
type Source interface {
	// Next returns the next chunk, io.EOF after the last, or the error that ended the
	// input. It blocks while a stream has no data yet.
	Next(ctx context.Context) (chunk.Chunk, error)
	// Total returns the number of records in all chunks. While known is false, it is the
	// number found so far.
	Total() (records int64, known bool)
	// Blank returns the number of blank lines found so far: all of them once Next has
	// returned io.EOF.
	Blank() int64
	// Release reports that the bytes of a chunk, or of some of its records, are no longer
	// needed.
	Release(chunk.Chunk)
	// Close frees all resources. No chunk may be read afterwards.
	Close() error
}

// Streamed is a source whose Next may have to wait for the writer of the stream.
type Streamed interface {
	Source
	// Ready reports whether Next would return at once.
	Ready() bool
}

// Located is a source that knows which of its sections a record belongs to.
type Located interface {
	Source
	// SectionOf returns the number of the section, if the record has been returned by Next.
	SectionOf(record int64) (number int, ok bool)
	// SumsOf returns the checksums of what was read of a section of plain lines so far, and
	// whether that is all of it.
	SumsOf(number int) (sums Sums, whole bool)
}

// Estimated is a source that knows about how many records there are before all are read.
type Estimated interface {
	Source
	// Estimate returns the number, 0 if nothing can be said.
	Estimate() int64
}

// Limits selects which records of the input to use.
type Limits struct {
	// Offset is the number of records to skip.
	Offset int64
	// Limit is the number of records to use after that; 0 means all.
	Limit int64
}

// Select reports whether all of these records are used.
func (l Limits) Select(first, records int64) bool {
	return first >= l.Offset && (l.Limit == 0 || first+records <= l.Offset+l.Limit)
}

// Cut records how a file was split, so that a resumed job can split it the same way.
type Cut struct {
	// Chunks are all chunks of a file that was counted first; nil for a file that is split
	// by bytes while the job runs.
	Chunks []chunk.Chunk `json:"chunks,omitempty"`
	// Records and Blank are the numbers of records and blank lines, if the file was
	// counted.
	Records int64 `json:"records,omitempty"`
	Blank   int64 `json:"blank,omitempty"`
	// Bytes is the target chunk size of a file that is split by bytes.
	Bytes int64 `json:"bytes,omitempty"`
	// Sums are checksums of the file, if it was counted; else nil.
	Sums *Sums `json:"sums,omitempty"`
	// ChunkRecords and ChunkBytes are the chunk sizes of an input that is not one plain file:
	// that of decoded sections, and that of plain files among them.
	ChunkRecords int64 `json:"chunk_records,omitempty"`
	ChunkBytes   int64 `json:"chunk_bytes,omitempty"`
	// BundleBytes is how many bytes of small files form one section; 0 if every file is one.
	BundleBytes int64 `json:"bundle_bytes,omitempty"`
	// PartBytes is the part size of an output that is a folder.
	PartBytes int64 `json:"part_bytes,omitempty"`
}

// Planner is a source that can be split the same way again.
type Planner interface {
	Source
	// Cut returns how it was split. It may be called before the first Next.
	Cut() Cut
	// Sums returns the checksums of the bytes scanned so far.
	Sums() Sums
	// Recut splits it into another number of chunks, for another batch size. It must be
	// called before the first Next.
	Recut(chunks, batchSize int) error
}

// planned is a source of known chunks.
type planned struct {
	cut  Cut
	next int
}

// FromCut returns the source of a file that was split before. The file must not have
// changed since.
func FromCut(cut Cut) Source { return &planned{cut: cut} }

func (p *planned) Next(context.Context) (chunk.Chunk, error) {
	if p.next == len(p.cut.Chunks) {
		return chunk.Chunk{}, io.EOF
	}
	p.next++
	return p.cut.Chunks[p.next-1], nil
}

func (p *planned) Total() (int64, bool) { return p.cut.Records, true }
func (p *planned) Blank() int64         { return p.cut.Blank }
func (p *planned) Release(chunk.Chunk)  {}
func (p *planned) Close() error         { return nil }
