package chunk

import (
	"context"
	"io"
)

// Cut records how a file was split, so that a resumed job can split it the same way.
type Cut struct {
	// Chunks are all chunks of a file that was counted first; nil for a file that is split
	// by bytes while the job runs.
	Chunks []Chunk `json:"chunks,omitempty"`
	// Records and Blank are the numbers of records and blank lines, if the file was
	// counted.
	Records int64 `json:"records,omitempty"`
	Blank   int64 `json:"blank,omitempty"`
	// Bytes is the target chunk size of a file that is split by bytes.
	Bytes int64 `json:"bytes,omitempty"`
	// Sums are checksums of the file, if it was counted; nil in jobs started by versions
	// that did not compute them.
	Sums *InputSums `json:"sums,omitempty"`
	// PartBytes is the part size of an output that is a folder.
	PartBytes int64 `json:"part_bytes,omitempty"`
}

// Planner is a source that can be split the same way again.
type Planner interface {
	Source
	// Cut returns how it was split. It may be called before the first Next.
	Cut() Cut
	// Sums returns the checksums of the bytes scanned so far.
	Sums() InputSums
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

func (p *planned) Next(context.Context) (Chunk, error) {
	if p.next == len(p.cut.Chunks) {
		return Chunk{}, io.EOF
	}
	p.next++
	return p.cut.Chunks[p.next-1], nil
}

func (p *planned) Total() (int64, bool) { return p.cut.Records, true }
func (p *planned) Blank() int64         { return p.cut.Blank }
func (p *planned) Release(Chunk)        {}
func (p *planned) Close() error         { return nil }

// remaining is a source without the records that a state already holds.
type remaining struct {
	Source
	state State
	ready []Chunk
}

// Remaining returns the part of a source that is still to be computed. Total and Blank
// still describe the whole source.
func Remaining(source Source, state State) Source {
	return &remaining{Source: source, state: state}
}

func (r *remaining) Next(ctx context.Context) (Chunk, error) {
	for len(r.ready) == 0 {
		c, err := r.Source.Next(ctx)
		if err != nil {
			return Chunk{}, err
		}
		r.ready = r.state.Remaining([]Chunk{c})
	}
	c := r.ready[0]
	r.ready = r.ready[1:]
	return c, nil
}
