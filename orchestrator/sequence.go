package orchestrator

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// chunksFile is the log of the chunks of an input that is not one plain file.
	chunksFile = "input.chunks"
	// spoolDir holds decoded records until they are computed.
	spoolDir = "spool"
)

// openSequence starts to read an input that is not one plain file.
func (p *prepared) openSequence(f *folder) (err error) {
	p.cutSequence()
	if resumable(p.config) {
		if p.chunkLog, err = input.OpenChunkLog(f.join(chunksFile)); err != nil {
			return err
		}
		if repaired := p.config.repaired; repaired != nil {
			if err := p.chunkLog.Forget(repaired.First); err != nil {
				return err
			}
		}
		if err := p.checkLog(); err != nil {
			return err
		}
	}
	if !p.config.Resume.Spool {
		_ = os.RemoveAll(f.join(spoolDir)) // a killed run may have left it
	}
	options := input.SequenceOptions{
		Limits: p.limits(), Dir: f.join(spoolDir),
		ChunkRecords: p.cut.ChunkRecords, ChunkBytes: p.cut.ChunkBytes,
		Ahead: 2*(len(p.plan.Slots)+len(p.reserve)) + 2, Parallel: p.config.cores(),
		Log: p.chunkLog, Keep: p.config.Resume.Spool && resumable(p.config),
		SkipBad: p.config.Input.SkipBad, Skipped: p.skipped,
	}
	if flushes(p.config) {
		options.Flush = p.config.Input.Flush
	}
	if p.earlier != nil {
		options.Done = p.earlier.state.Holds
	}
	source, err := input.Sequence(p.sections(), options)
	if err != nil {
		return err
	}
	p.source = source
	p.keeper, _ = source.(input.Keeper)
	p.located, _ = source.(input.Located)
	p.watch.source = p.located
	p.estimated, _ = source.(input.Estimated)
	if p.earlier != nil {
		p.source = commit.Remaining(source, p.earlier.state)
	}
	return nil
}

// cutSequence decides how large chunks are: as in the earlier run.
func (p *prepared) cutSequence() {
	if p.earlier != nil && p.earlier.manifest.Cut.ChunkRecords > 0 {
		p.cut = p.earlier.manifest.Cut
		return
	}
	p.cut = input.Cut{ChunkRecords: p.config.Input.ChunkRecords, BundleBytes: bundleBytes}
	batches := chunkBatches
	if p.plan.GrowBatch {
		batches *= grownRecords
	}
	setDefault(&p.cut.ChunkRecords, max(int64(batches*p.plan.BatchSize), int64(chunkRounds*p.plan.Info.Concurrency)))
	var plain int64
	for _, file := range p.config.inputs.files {
		if file.stream == nil && file.kind.Plain() {
			plain += file.info.Size()
		}
	}
	chunks, _ := p.chunks()
	p.cut.ChunkBytes = min(max(chunk.CeilDiv(plain, int64(max(chunks, 1))), leastChunkBytes), mostChunkBytes)
}

// The bounds of a chunk of a plain file among several inputs.
const (
	leastChunkBytes = 64 << 10
	mostChunkBytes  = 256 << 20
)

// flushes reports whether a record of a slow stream is computed before its chunk is full.
// Where the output's borders depend on chunks, they must depend on the content alone.
func flushes(c Config) bool {
	return c.inputs.streams() && !c.format().Table && (isStream(c.Output.Path) || !keepsParts(c.Output.Path) && !c.cutsUnits())
}

// checkLog refuses to resume a stream whose earlier bytes cannot be compared.
func (p *prepared) checkLog() error {
	if p.earlier == nil || !p.config.inputs.streams() {
		return nil
	}
	if end := p.earlier.state.End(); end <= p.config.Input.Offset || p.chunkLog.Covers(end) {
		return nil
	}
	return fault.New(fault.Conflict, "the log of what the job has read of its input is incomplete, so the input cannot be compared").WithCode(fault.Damaged, "")
}

// sections returns the inputs as what is to be read.
func (p *prepared) sections() []input.Section {
	files := p.config.inputs.files
	ranges := p.config.inputs.bundles(p.cut.BundleBytes)
	p.watch.sections = ranges
	sections := make([]input.Section, len(ranges))
	options := p.formatOptions()
	counts := p.config.Input.Counts
	if len(counts) != len(files) {
		counts = nil
	}
	var first int64 // of the section
	for i, r := range ranges {
		whole, records := p.limits() == (input.Limits{}), int64(0)
		skips := make([]int64, r.to-r.from)
		if counts != nil {
			for i, n := range counts[r.from:r.to] {
				skips[i] = max(0, p.limits().Offset-first-records)
				records += n
			}
			whole = whole || p.limits().Select(first, records)
			first += records
		}
		s := p.section(r, options, skips, whole)
		s.Counted, s.Records = counts != nil, records
		sections[i] = s
	}
	return sections
}

// formatOptions are how the inputs are decoded.
func (p *prepared) formatOptions() format.Options {
	options := format.Options{Members: p.members(), Columns: p.config.Input.Columns, Types: p.config.Output.Columns, Threads: 1}
	if len(p.config.inputs.files) == 1 {
		options.Threads = p.config.cores()
	}
	return options
}

// section returns some files as a section. skips are how many records of each are not used at
// its start. whole: all of their records are used.
func (p *prepared) section(r fileRange, options format.Options, skips []int64, whole bool) input.Section {
	if r.to-r.from > 1 {
		return p.bundle(r, options, skips)
	}
	file := p.config.inputs.files[r.from]
	options.Skip = skips[0]
	s := input.Section{Name: file.name, Number: r.from}
	switch {
	case file.stream != nil:
		s.Once, s.Open = true, p.openStream(file, options)
		if file.name == "-" {
			s.Name = ""
		}
	case file.kind.Plain() && whole:
		s.Path, s.Same, s.Size = file.name, p.unchanged(r.from), file.info.Size()
	default:
		read := new(atomic.Int64)
		s.Open, s.Same, s.Size, s.Read = openDecoded(file, options, read), p.unchanged(r.from), file.info.Size(), read.Load
	}
	return s
}

// bundle returns the section of several small files.
func (p *prepared) bundle(r fileRange, options format.Options, skips []int64) input.Section {
	read := new(atomic.Int64)
	s := input.Section{Same: true, Read: read.Load}
	for i, file := range p.config.inputs.files[r.from:r.to] {
		options.Skip = skips[i]
		open := openDecoded(file, options, read)
		s.Files = append(s.Files, input.SectionFile{Name: file.name, Number: r.from + i, Open: func(ctx context.Context) (format.Lines, error) {
			lines, err := open(ctx)
			if err == nil {
				lines.ReadCloser = &checkedLines{readCloser: lines.ReadCloser, watch: p.watch, file: file}
			}
			return lines, err
		}})
		s.Same = s.Same && p.unchanged(r.from+i)
		s.Size += file.info.Size()
	}
	return s
}

// members returns the only members of a record that the job needs; nil for all.
func (p *prepared) members() []string {
	kept := p.config.Output.kept()
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

// unchanged reports whether the earlier run has read the same file.
func (p *prepared) unchanged(i int) bool {
	if p.earlier == nil {
		return false
	}
	was := p.earlier.manifest.Fingerprint.Input.Files
	if len(was) != len(p.config.inputs.files) {
		return false
	}
	same, now := was[i], p.config.inputs.files[i].state()
	same.modified = now.modified
	return same == now && (was[i].modified.Equal(now.modified) || !p.config.inputs.files[i].kind.Plain())
}

// openStream returns what opens a stream.
func (p *prepared) openStream(file inputFile, options format.Options) func(context.Context) (format.Lines, error) {
	name := "standard input"
	if file.name != "-" {
		name = "input " + file.name
	}
	return func(ctx context.Context) (format.Lines, error) {
		if file.sampled != nil {
			return *file.sampled, nil
		}
		if p.config.streaming { // it consists of records
			return format.Lines{ReadCloser: io.NopCloser(file.stream), First: 1}, nil
		}
		return decode.OpenStream(ctx, file.stream, name, p.config.Input.Format, options), nil
	}
}

// openDecoded returns what opens a file that must be decoded. The bytes that are read of it
// are added to read.
func openDecoded(file inputFile, options format.Options, read *atomic.Int64) func(context.Context) (format.Lines, error) {
	return func(ctx context.Context) (format.Lines, error) {
		opened, err := os.Open(file.path)
		if err != nil {
			return format.Lines{}, fault.New(fault.Storage, "open input: %w", err)
		}
		lines, err := decode.Open(ctx, countedFile{decode.File(opened, file.name, file.info.Size()), read}, file.kind, options)
		if err != nil {
			opened.Close()
			return lines, err
		}
		lines.ReadCloser = &closesFile{lines.ReadCloser, opened}
		return lines, nil
	}
}

// countedFile counts the bytes that are read of a file.
type countedFile struct {
	format.File
	read *atomic.Int64
}

func (f countedFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	f.read.Add(int64(n))
	return n, err
}

// closesFile closes a decoder and then its file.
type closesFile struct {
	readCloser
	file *os.File
}

type readCloser interface {
	Read([]byte) (int, error)
	Close() error
}

func (c *closesFile) Close() error {
	err := c.readCloser.Close()
	c.file.Close()
	return err
}

// skipped reports a file that could not be read to its end.
func (p *prepared) skipped(d input.Damage) {
	p.skips.add(SkippedInput{File: d.Name, Line: d.Line, Rows: d.Rows, Message: d.Err.Error()})
	p.emit(Notice{Text: fmt.Sprintf("skipped the rest of input %s, from %s %d on: %v", d.Name, chunk.Unit(d.Rows), d.Line, d.Err)})
}
