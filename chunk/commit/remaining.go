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
	err   error // that followed the last chunk
}

// Remaining returns the part of a source that is still to be computed. Total and Blank
// still describe the whole source.
func Remaining(source input.Source, state State) input.Source {
	r := &remaining{Source: source, state: state}
	if stream, ok := source.(input.Streamed); ok {
		return &remainingStream{r, stream}
	}
	return r
}

func (r *remaining) Next(ctx context.Context) (chunk.Chunk, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return chunk.Chunk{}, r.err
		}
		if err := r.fetch(ctx); err != nil {
			return chunk.Chunk{}, err
		}
	}
	c := r.ready[0]
	r.ready = r.ready[1:]
	return c, nil
}

// fetch takes one chunk from the source and drops what is done of it.
func (r *remaining) fetch(ctx context.Context) error {
	c, err := r.Source.Next(ctx)
	if err != nil {
		return err
	}
	r.ready = r.state.Remaining([]chunk.Chunk{c})
	done := c
	for _, left := range r.ready {
		done.Records -= left.Records
	}
	if done.Records > 0 {
		r.Source.Release(done)
	}
	return nil
}

// remainingStream is what remains of a stream.
type remainingStream struct {
	*remaining
	stream input.Streamed
}

// Ready reports whether Next would return at once. It drops what is done. It must not be
// called while Next is.
func (r *remainingStream) Ready() bool {
	for len(r.ready) == 0 && r.err == nil && r.stream.Ready() {
		r.err = r.fetch(context.Background())
	}
	return len(r.ready) > 0 || r.err != nil
}
