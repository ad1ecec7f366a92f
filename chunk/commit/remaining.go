package commit

import (
	"context"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
)

// remaining is a source without the records that a state already holds.
type remaining struct {
	input.Source
	state State
	ready []chunk.Chunk
}

// Remaining returns the part of a source that is still to be computed. Total and Blank
// still describe the whole source.
func Remaining(source input.Source, state State) input.Source {
	return &remaining{Source: source, state: state}
}

func (r *remaining) Next(ctx context.Context) (chunk.Chunk, error) {
	for len(r.ready) == 0 {
		c, err := r.Source.Next(ctx)
		if err != nil {
			return chunk.Chunk{}, err
		}
		r.ready = r.state.Remaining([]chunk.Chunk{c})
	}
	c := r.ready[0]
	r.ready = r.ready[1:]
	return c, nil
}
