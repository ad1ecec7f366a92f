package orchestrator

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/orchestrator/source"
)

const (
	// chunksFile is the log of what was read of the input.
	chunksFile = "input.chunks"
	// spoolDir holds decoded records until they are computed.
	spoolDir = "spool"
	// chunkBatches is how many batches a chunk of a stream holds by default.
	chunkBatches = 16
)

// inputNames returns what the user has named.
func inputNames(i Input) []string {
	if len(i.Paths) > 0 {
		return i.Paths
	}
	return []string{i.Path}
}

// limits are the records of the input that the job computes.
func (c *order) limits() input.Limits {
	return input.Limits{Offset: c.Input.Offset, Limit: c.Input.Limit}
}

// findInput finds the files and streams that the input's names stand for.
func (c *order) findInput() (err error) {
	names := inputNames(c.Input)
	c.inputs, err = source.Find(source.Options{
		Names: names, Stdin: c.Input.Stdin, Lines: c.stdin, Format: c.Input.Format, Columns: c.Input.Columns, SkipBad: c.Input.SkipBad,
		NoMembers: c.Results.Batch, // whose lines have the members that the API knows
		OriginOf:  newJobFiles(c.Output, c.Resume.WorkDir).originOf,
	})
	if err == nil {
		c.Spec, err = c.Reading(c.inputs.Label(names), c.inputs.Paths())
	}
	return err
}

// countInput counts the records, if that is possible before the job starts, and cuts the input;
// batch is the batch size if already known.
func (p *prepared) countInput(ctx context.Context, batch int) (err error) {
	p.count, err = p.config.inputs.Count(ctx, p.config.Input.Split, p.config.limits(), p.config.Input.Place)
	if err != nil || p.count == nil {
		return err
	}
	setDefault(&batch, DefaultBatchSize)
	chunks, _ := p.chunks()
	p.cut, err = p.count.Cut(chunks, batch)
	return err
}

// openSource starts to read the input.
func (p *prepared) openSource(ctx context.Context, f *folder) (err error) {
	if err := p.sampleInput(ctx); err != nil {
		return err
	}
	p.cutInput()
	c := p.config
	r := source.Reading{
		Options: input.Options{
			Limits: c.limits(), Dir: f.join(spoolDir), Ahead: 2*(len(p.plan.Slots)+len(p.staff.reserve)) + 2, Parallel: c.cores(),
			SkipBad: c.Input.SkipBad, Skipped: p.skipped,
		},
		Cut: p.cut, Window: c.Input.Place, Counts: c.Input.Counts, Decoding: p.formatOptions(), Notice: p.notice,
	}
	if !c.Results.Streamed() {
		r.Log, r.Resumable, r.Keep = f.join(chunksFile), true, c.Resume.Spool
	}
	if c.repaired != nil {
		r.Forget = &c.repaired.First
	}
	if c.inputs.Streams() && c.Results.Flushes() {
		r.Flush = c.Input.Flush
	}
	r.Earlier, r.Was, r.Done = p.earlier.state, p.earlier.manifest.Input.Files, p.earlier.reached()
	p.source, err = c.inputs.Open(r)
	return err
}

// cutInput decides how large the chunks are of an input that is not cut yet.
func (p *prepared) cutInput() {
	if p.cut.Counted() || p.cut.ChunkRecords > 0 {
		return
	}
	records := p.config.Input.ChunkRecords
	batches := chunkBatches
	if p.plan.GrowBatch {
		batches *= grownRecords
	}
	setDefault(&records, max(int64(batches*p.plan.BatchSize), int64(chunkRounds*p.plan.Info.Concurrency)))
	chunks, _ := p.chunks()
	p.cut = p.config.inputs.NewCut(records, chunks, p.config.Input.Split)
}

// reached returns the number behind the last record that the earlier run has computed; 0 if it
// has computed none.
func (e *earlier) reached() int64 {
	if end := e.state.End(); end > e.manifest.Input.Offset {
		return end
	}
	return 0
}

// formatOptions are how the inputs are decoded.
func (p *prepared) formatOptions() format.Options {
	options := format.Options{Members: p.members(), Columns: p.config.Input.Columns, Types: p.config.Output.Columns, Threads: 1}
	if len(p.config.inputs.Files) == 1 {
		options.Threads = p.config.cores()
	}
	return options
}

// members returns the only members of a record that the job needs; nil for all.
func (p *prepared) members() []string {
	kept := p.config.Results.Kept
	if len(kept) == 0 || !p.plan.Info.OnlyInputs {
		return nil
	}
	members := slices.Concat(kept, p.plan.Info.Inputs, p.fetchFields())
	if p.plan.GroupBy != "" {
		members = append(members, p.plan.GroupBy)
	}
	return append(members, errorMember)
}

// errorMember marks a record that failed before.
const errorMember = "_error"

// skipped reports a file that could not be read to its end.
func (p *prepared) skipped(d input.Damage) {
	p.skips.add(SkippedInput{File: d.Name, Line: d.Line, Rows: d.Rows, Message: d.Err.Error()})
	p.notice(fmt.Sprintf("skipped the rest of input %s, from %s %d on: %v", d.Name, chunk.Unit(d.Rows), d.Line, d.Err))
}
