package chunk

import (
	"context"
	"io"
)

// Cut is how a file was cut: what a job that goes on must know to cut it the same
// way again.
type Cut struct {
	// Chunks are all chunks of a file that was counted first; nil for one that
	// is cut by bytes while it runs.
	Chunks []Chunk `json:"chunks,omitempty"`
	// Records and Blank are its records and blank lines, if it was counted.
	Records int64 `json:"records,omitempty"`
	Blank   int64 `json:"blank,omitempty"`
	// Bytes is the size aimed at, of a file that is cut by bytes.
	Bytes int64 `json:"bytes,omitempty"`
	// Sums are checksums of its bytes, if it was counted; nil in jobs begun by
	// versions that took none.
	Sums *InputSums `json:"sums,omitempty"`
	// PartBytes is that of the parts of an output that is a folder of them.
	PartBytes int64 `json:"part_bytes,omitempty"`
}

// Planner is a source that can be cut the same way again.
type Planner interface {
	Source
	// Cut says how. It may be asked before the first Next.
	Cut() Cut
	// Sums are the checksums of the bytes that were scanned so far.
	Sums() InputSums
	// Recut cuts it into another number of chunks, and for another batch size;
	// before the first Next.
	Recut(chunks, batchSize int) error
}

// planned gives chunks that are known already.
type planned struct {
	cut  Cut
	next int
}

// FromCut is the source of a file that was cut before. The file must not have
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

// remaining gives what a state leaves of another source.
type remaining struct {
	Source
	state State
	ready []Chunk
}

// Remaining is what of a source is still to be computed; Total and Blank remain
// those of the whole.
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
