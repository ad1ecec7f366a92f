package orchestrator

import (
	"context"
	"fmt"
	"io"
	"os"

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
	p.cut = input.Cut{ChunkRecords: p.config.Input.ChunkRecords}
	setDefault(&p.cut.ChunkRecords, max(int64(chunkBatches*p.plan.BatchSize), int64(chunkRounds*p.plan.Info.Concurrency)))
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
	return c.inputs.streams() && (isStream(c.Output.Path) || !keepsParts(c.Output.Path) && !c.format().Encodes())
}

// checkLog refuses to resume a stream whose earlier bytes cannot be compared.
func (p *prepared) checkLog() error {
	if p.earlier == nil || !p.config.inputs.streams() || p.chunkLog.Covers(p.earlier.state.End()) {
		return nil
	}
	return fault.New(fault.Conflict, "the log of what the job has read of its input is incomplete, so the input cannot be compared").WithCode(fault.Damaged, "")
}

// sections returns the inputs as what is to be read.
func (p *prepared) sections() []input.Section {
	files := p.config.inputs.files
	sections := make([]input.Section, len(files))
	options := format.Options{Members: p.members(), Columns: p.config.Input.Columns, Threads: 1}
	if len(files) == 1 {
		options.Threads = p.config.cores()
	}
	counts := p.config.Input.Counts
	if len(counts) != len(files) {
		counts = nil
	}
	var first int64 // of the file
	for i, file := range files {
		s := input.Section{Name: file.name}
		whole := p.limits() == (input.Limits{})
		if counts != nil {
			s.Counted, s.Records = true, counts[i]
			whole = whole || p.limits().Select(first, counts[i])
			first += counts[i]
		}
		switch {
		case file.stream != nil:
			s.Once, s.Open = true, p.openStream(file, options)
			if file.name == "-" {
				s.Name = ""
			}
		case file.kind.Plain() && whole:
			s.Path, s.Same = file.name, p.unchanged(i)
		default:
			s.Open, s.Same = openDecoded(file, options), p.unchanged(i)
		}
		sections[i] = s
	}
	return sections
}

// members returns the only members of a record that the job needs; nil for all.
func (p *prepared) members() []string {
	if len(p.config.Output.Keep) == 0 || p.plan.Info.Inputs == nil {
		return nil
	}
	return append(append([]string(nil), p.config.Output.Keep...), p.plan.Info.Inputs...)
}

// unchanged reports whether the earlier run has read the same file.
func (p *prepared) unchanged(i int) bool {
	if p.earlier == nil {
		return false
	}
	was, now := p.earlier.manifest.Fingerprint.Input.Files, p.config.inputs.states()
	if len(was) != len(now) {
		return false
	}
	same := was[i]
	same.modified = now[i].modified
	return same == now[i] && (was[i].modified.Equal(now[i].modified) || !p.config.inputs.files[i].kind.Plain())
}

// openStream returns what opens a stream.
func (p *prepared) openStream(file inputFile, options format.Options) func(context.Context) (format.Lines, error) {
	name := "standard input"
	if file.name != "-" {
		name = "input " + file.name
	}
	return func(ctx context.Context) (format.Lines, error) {
		if p.config.streaming { // it consists of records
			return format.Lines{ReadCloser: io.NopCloser(file.stream), First: 1}, nil
		}
		return decode.OpenStream(ctx, file.stream, name, p.config.Input.Format, options), nil
	}
}

// openDecoded returns what opens a file that must be decoded.
func openDecoded(file inputFile, options format.Options) func(context.Context) (format.Lines, error) {
	return func(ctx context.Context) (format.Lines, error) {
		opened, err := os.Open(file.path)
		if err != nil {
			return format.Lines{}, fault.New(fault.Storage, "open input: %w", err)
		}
		lines, err := decode.Open(ctx, decode.File(opened, file.name, file.info.Size()), file.kind, options)
		if err != nil {
			opened.Close()
			return lines, err
		}
		lines.ReadCloser = &closesFile{lines.ReadCloser, opened}
		return lines, nil
	}
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
	p.skips.add(SkippedInput{File: d.Name, Line: d.Line, Message: d.Err.Error()})
	p.emit(Notice{Text: fmt.Sprintf("skipped the rest of input %s, from line %d on: %v", d.Name, d.Line, d.Err)})
}
