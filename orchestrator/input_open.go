package orchestrator

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
)

// openInput opens a plain file; batch is the batch size if already known. Anything else is
// opened only when the job starts: a stream can be read only once, and what is decoded goes
// to the job folder.
func (p *prepared) openInput(ctx context.Context, batch int) error {
	if p.config.inputs != nil {
		p.watch = &filesWatch{files: p.config.inputs.files, resumable: resumable(p.config)}
		return nil
	}
	var err error
	if p.input, err = watchInput(p.config); err != nil {
		return err
	}
	setDefault(&batch, DefaultBatchSize)
	chunks, _ := p.chunks()
	options := input.CutOptions{
		Limits: p.limits(), Chunks: chunks, BatchSize: batch, Split: p.config.Input.Split, Window: p.config.Input.Place,
	}
	if p.earlier != nil {
		return p.reopenInput(ctx, options)
	}
	source, err := input.Open(ctx, p.config.Input.Path, options)
	if err != nil {
		return err
	}
	p.source = source
	if planner, ok := source.(input.Planner); ok {
		p.cut = planner.Cut()
		p.input.sums, p.input.whole = planner.Sums, p.cut.Sums != nil
	}
	return nil
}

// reopenInput cuts the input as before and skips what is done. The input is compared
// with its earlier state later.
func (p *prepared) reopenInput(ctx context.Context, options input.CutOptions) error {
	p.cut = p.earlier.manifest.Cut
	p.cut.Chunks = slices.Clone(p.cut.Chunks)
	for i := range p.cut.Chunks { // the earlier run may have been started in another folder
		p.cut.Chunks[i].File = p.config.Input.Path
	}
	source := input.FromCut(p.cut)
	if sums := p.cut.Sums; sums != nil {
		p.input.sums, p.input.whole = func() input.Sums { return *sums }, true
	}
	if p.cut.Bytes > 0 {
		options.Bytes = p.cut.Bytes
		var err error
		if source, err = input.Open(ctx, p.config.Input.Path, options); err != nil {
			return err
		}
		if planner, ok := source.(input.Planner); ok {
			p.input.sums = planner.Sums
		}
	}
	p.source = commit.Remaining(source, p.earlier.state)
	return nil
}

func (p *prepared) limits() input.Limits {
	return input.Limits{Offset: p.config.Input.Offset, Limit: p.config.Input.Limit}
}
