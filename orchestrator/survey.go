package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Survey is what must be known of a job before it is divided among machines, each of which
// computes a range of its records with Input.Offset and Input.Limit.
type Survey struct {
	// First is the number of the job's first record, Records how many there are.
	First, Records int64
	// Print is everything that the output depends on; see ComparePrints.
	Print json.RawMessage
	// Output and Errors are absolute paths; Format is that of the output, Parts whether it is
	// a folder of parts.
	Output, Errors, Format string
	Parts                  bool
	// Index is where the ranges are.
	Index Index
	// Notes are lines for the user.
	Notes []string
}

// Index is where the ranges of an input are, so that no job has to count what precedes its
// own.
type Index struct {
	// Places are the ranges in an input that is one plain file.
	Places []chunk.Chunk `json:"places,omitempty"`
	// Files are the numbers of records in the files of any other input.
	Files []int64 `json:"files,omitempty"`
}

// MakeSurvey checks that a job can be divided into this number of ranges, of equal size
// by ceiling division, and finds them. It reads all of the input.
func MakeSurvey(ctx context.Context, config Config, ranges int) (Survey, error) {
	s, config, err := describeJob(config)
	if err != nil {
		return s, err
	}
	if err := checkOutputs(config); err != nil {
		return s, err
	}
	limits := input.Limits{Offset: config.Input.Offset, Limit: config.Input.Limit}
	if config.inputs != nil {
		err = s.countFiles(ctx, config, limits, ranges)
	} else {
		err = s.countFile(ctx, config, limits, ranges)
	}
	s.First = limits.Offset
	return s, err
}

// DescribeJob is MakeSurvey without reading the input: it leaves out what only that shows.
func DescribeJob(config Config) (Survey, error) {
	s, _, err := describeJob(config)
	return s, err
}

func describeJob(config Config) (Survey, Config, error) {
	if config.Output.Path == "" {
		return Survey{}, config, fault.New(fault.Usage, "no output: name a file").WithCode(fault.NoOutput, "")
	}
	config, err := config.withDefaults()
	if err != nil {
		return Survey{}, config, err
	}
	switch {
	case config.Input.Path == "-" || config.inputs.streams():
		return Survey{}, config, fault.New(fault.Usage, "only files can be divided among machines: a stream can be read only once")
	case isStream(config.Output.Path):
		return Survey{}, config, fault.New(fault.Usage, "the output %s is a stream; machines that share a job need a file or a folder", config.Output.Path)
	case config.format().Table:
		return Survey{}, config, fault.New(fault.Usage, "machines that share a job cannot write %s: its columns are the same in all of it, and each machine sees only a part; write lines, which other programs convert", config.format().Name).Set("output-format")
	case len(config.Output.Arrays) > 0:
		return Survey{}, config, fault.New(fault.Usage, "machines that share a job cannot write arrays: each is one file; keep the columns in the lines").Set("column")
	case config.Resume.WorkDir != "":
		return Survey{}, config, fault.New(fault.Usage, "machines that share a job keep their files next to the output").Set("work-dir")
	case config.Resume.Fresh:
		return Survey{}, config, fault.New(fault.Usage, "machines that share a job always resume it").Set("fresh")
	}
	for _, check := range []func(Config) error{checkInput, checkOutputFolders} {
		if err := check(config); err != nil {
			return Survey{}, config, err
		}
	}
	s := Survey{Output: absolute(config.Output.Path), Format: config.format().Name, Parts: keepsParts(config.Output.Path)}
	if s.Parts {
		s.Output += "/"
	}
	if config.Output.Errors != "" {
		s.Errors = absolute(config.Output.Errors)
	}
	print, err := takeFingerprint(config, kernelFile(config))
	if err != nil {
		return s, config, err
	}
	print.Input.Changed = time.Time{} // hosts may see different ones
	s.Print, err = json.Marshal(print)
	return s, config, err
}

// CheckKernel asks the kernel for its requirements, as MakePlan does, and compares the settings
// and the first records of the input with them. It ignores what the kernel needs of a device:
// other machines will run the job.
func CheckKernel(ctx context.Context, config Config) error {
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	p := &prepared{emitter: &emitter{to: config.Display.OnEvent}, config: config, preview: true}
	defer p.close()
	p.beginPlan()
	if err := p.makeRunDir(func(string) {}); err != nil {
		return err
	}
	p.setLayout()
	p.useNoDevice()
	if err := p.askKernel(ctx); err != nil {
		return err
	}
	p.plan.Info.NeedsGPU, p.plan.Info.MinMemory = false, 0
	if err := p.fitKernel(false); err != nil {
		return err
	}
	return p.checkMembers(ctx)
}

// kernelFile returns the kernel's file if its name is that of one.
func kernelFile(c Config) []string {
	path := c.Kernel.Name
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	if input.CheckRegular(path) != nil || files.IsFolder(path) {
		return nil
	}
	return []string{path}
}

// ComparePrints returns how a job differs from the one whose Print was taken first, except
// for accepted changes: kernel, config.
func ComparePrints(first, now json.RawMessage, accepted []string) ([]string, error) {
	var was, is fingerprint
	if err := json.Unmarshal(first, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(now, &is); err != nil {
		return nil, err
	}
	var texts []string
	for _, c := range is.changes(was) {
		if !slices.Contains(accepted, c.what) {
			texts = append(texts, c.text)
		}
	}
	return texts, nil
}

// countFile finds the ranges of one plain file.
func (s *Survey) countFile(ctx context.Context, c Config, limits input.Limits, ranges int) error {
	source, err := input.Open(ctx, c.Input.Path, input.CutOptions{Limits: limits, Chunks: ranges, BatchSize: 1, Split: input.SplitRecords})
	if err != nil {
		return err
	}
	defer source.Close()
	s.Records, _ = source.Total()
	if planner, ok := source.(input.Planner); ok {
		s.Index.Places = planner.Cut().Chunks
	}
	return nil
}

// countFiles counts the records of every file, several at a time.
func (s *Survey) countFiles(ctx context.Context, c Config, limits input.Limits, ranges int) error {
	counts := make([]int64, len(c.inputs.files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.cores())
	options := format.Options{Columns: c.Input.Columns, Threads: 1}
	for i, file := range c.inputs.files {
		group.Go(func() (err error) {
			counts[i], err = countRecords(ctx, file, options, c.Input.SkipBad)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var all int64
	for _, n := range counts {
		all += n
	}
	s.Records = max(0, all-limits.Offset)
	if limits.Limit > 0 {
		s.Records = min(s.Records, limits.Limit)
	}
	s.Index.Files = counts
	s.noteReread(c.inputs.files, counts, limits.Offset, ranges)
	return nil
}

// manyBytes is how many compressed bytes the machines may decode only to skip them, without a
// warning.
const manyBytes = 1 << 30

// noteReread warns of compressed files that machines decode up to their range, although they
// use nothing of it.
func (s *Survey) noteReread(files []inputFile, counts []int64, offset int64, ranges int) {
	size := chunk.Size(s.Records, ranges, 1)
	var begin int64 // of the file
	for i, file := range files {
		if bytes := reread(begin, counts[i], file.info.Size(), offset, s.Records, size); !file.kind.Seekable() && bytes > manyBytes {
			s.Notes = append(s.Notes, fmt.Sprintf("%s (%s) can only be read from its start: machines whose shards begin inside it decode what precedes them, about %d times the file in all; "+
				"fewer shards, or the same records in many files, avoid that", file.name, file.kind, chunk.CeilDiv(bytes, file.info.Size())))
		}
		begin += counts[i]
	}
}

// reread returns how many bytes of a file precede the ranges that begin inside it, added up.
// All but bytes are numbers of records: where the file begins and how many it has, the first
// and the number of all that are used, and the size of a range.
func reread(begin, records, bytes, first, used, size int64) (sum int64) {
	if size == 0 {
		return 0
	}
	for at := first; at < first+used && at < begin+records; at += size {
		if at > begin {
			sum += int64(float64(bytes) * float64(at-begin) / float64(records))
		}
	}
	return sum
}

// countRecords counts the records of one file. A damaged one ends where the damage begins,
// if such files are skipped.
func countRecords(ctx context.Context, file inputFile, options format.Options, skipBad bool) (int64, error) {
	if !skipBad {
		if records, ok, err := countStored(file, options); ok || err != nil {
			return records, err
		}
	}
	lines, err := openDecoded(file, options, new(atomic.Int64))(ctx)
	if err != nil {
		if skipBad {
			return 0, nil
		}
		return 0, err
	}
	defer lines.Close()
	records, err := input.CountLines(contextReader{ctx, lines})
	switch {
	case ctx.Err() != nil:
		return 0, fault.New(fault.Canceled, "stopped before anything was started")
	case err != nil && !skipBad:
		return 0, fault.New(fault.Storage, "read input %s: %w", file.name, err).WithCode(fault.BadInput, "")
	}
	return records, nil
}

// countStored returns the number of records that a file itself records, if its format does
// that.
func countStored(file inputFile, options format.Options) (records int64, ok bool, err error) {
	opened, err := os.Open(file.path)
	if err != nil {
		return 0, false, fault.New(fault.Storage, "open input: %w", err)
	}
	defer opened.Close()
	records, ok, err = decode.Count(decode.File(opened, file.name, file.info.Size()), file.kind, options)
	if err != nil {
		err = fault.New(fault.Storage, "read input %s: %w", file.name, err).WithCode(fault.BadInput, "")
	}
	return records, ok, err
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	in  format.Lines
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}
