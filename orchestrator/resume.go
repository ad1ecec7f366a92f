package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/retry"
	"github.com/gpurun/gpurun/worker/early"
)

// earlier is a job that was started in this folder and not finished.
type earlier struct {
	manifest *manifest
	journal  *commit.Journal
	state    commit.State
	check    *outputCheck            // that runs alongside the work; nil if it has ended
	notes    []string                // for the user
	answers  int64                   // logged, not committed
	stale    bool                    // another kernel or configuration gave the logged answers
	sums     input.Sums              // of an input that is cut while it is read
	chunkLog *input.ChunkLog         // of an input that is not one plain file
	workers  map[string]savedWorkers // as it left them in scalingFile
}

func (e *earlier) close() {
	e.check.close()
	e.journal.Close()
}

// findEarlier returns the job to resume, nil for a new one.
func findEarlier(ctx context.Context, c Config, f *folder) (_ *earlier, err error) {
	if c.Resume.Fresh || !resumable(c) {
		return nil, nil
	}
	m, err := f.unfinished()
	if err != nil || m == nil {
		return nil, err
	}
	journal, entries, err := commit.OpenJournal(f.join(journalFile))
	if err != nil {
		return nil, err
	}
	e := &earlier{manifest: m, journal: journal, workers: readSaved(f.join(scalingFile))}
	resumes := false
	defer func() {
		if !resumes {
			e.close()
		}
	}()
	if e.state, err = commit.Replay(entries); err != nil {
		return nil, err
	}
	if e.sums, err = input.ReadSumsLog(f.join(sumsFile)); err != nil {
		return nil, err
	}
	if e.chunkLog, err = input.ReadChunkLog(f.join(chunksFile)); err != nil {
		return nil, err
	}
	if c.repaired != nil {
		if err := e.forget(c.repaired.First, f); err != nil {
			return nil, err
		}
	} else if !e.computedAny() && !e.keepsPlan(c) && !e.keepsAnswers(c, f) {
		return nil, nil // there is nothing to resume
	}
	if lost := journal.Lost(); lost > 0 {
		e.notes = append(e.notes, fmt.Sprintf("the journal is damaged after its last durable point: "+
			"%d entries are dropped, and their records are computed again", lost))
	}
	if err := f.makeDirs(); err != nil {
		return nil, err
	}
	if err := e.checkOutput(ctx, c, f); err != nil {
		return nil, err
	}
	if !e.state.Complete {
		if err := e.state.Verify(f.join(commit.PartsDir), journal); err != nil {
			return nil, err
		}
	}
	if e.state.Durable.Next < c.Input.Offset { // nothing was durable yet
		e.state.Durable.Next = c.Input.Offset
	}
	if commit.HasEarly(f.join(commit.PartsDir)) {
		e.answers = loggedAnswers(f, e.state)
	}
	resumes = true
	return e, nil
}

// forget discards what earlier runs have computed from a record on, because they have read it
// from a damaged file.
func (e *earlier) forget(first int64, f *folder) error {
	before := e.state.Done()
	if err := e.state.CutBackTo(first, e.journal); err != nil {
		return err
	}
	if err := early.Forget(f.join(commit.PartsDir), first); err != nil {
		return fault.Wrap(fault.Storage, err)
	}
	e.notes = append(e.notes, fmt.Sprintf("a damaged input was replaced and differs from record %d on: %d records are computed again", first, before-e.state.Done()))
	return nil
}

// computedAny reports whether the earlier run has computed anything.
func (e *earlier) computedAny() bool { return e.state.Done() > 0 || e.state.Complete }

// keepsPlan reports whether a job that has computed nothing keeps its plan: it determines
// where the parts of a folder and the units of an encoded output end.
func (e *earlier) keepsPlan(c Config) bool {
	planned := keepsParts(c.Output.Path) && e.manifest.Cut.PartBytes == c.Output.PartBytes ||
		!keepsParts(c.Output.Path) && c.cutsUnits()
	return planned && len(e.changes(c)) == 0
}

// keepsAnswers reports whether a job that has committed nothing is resumed nevertheless,
// because workers have logged answers of its kernel.
func (e *earlier) keepsAnswers(c Config, f *folder) bool {
	return commit.HasEarly(f.join(commit.PartsDir)) && len(e.changes(c)) == 0
}

// finishEarlier finishes a job that was killed when only the final renames were
// missing.
func finishEarlier(c Config, f *folder, e *earlier) (Report, error) {
	defer e.close()
	if err := checkChanges(e.changes(c), c.Resume.AcceptChanges); err != nil {
		return Report{}, err
	}
	tally := e.state.Durable.Tally
	report := Report{
		Input: c.Input.Path, Output: c.Output.Path, Errors: c.Output.Errors, Format: c.Format, Kernel: c.Kernel.Name, Folder: f.path,
		Started: time.Now(), In: tally.Records, Resumed: tally.Records, Blank: e.manifest.Cut.Blank,
	}
	report.noteOutput(e.state.ResultSum(), e.state.Unencoded(), c.format())
	options := outputOptions(c, f)
	if options.Layout = e.manifest.sharedLayout(); options.Layout != nil {
		options.Layout.Settle()
		report.noteArrays(options.Arrays, e.state.ArraySums(options))
	}
	err := commit.Complete(options, e.state)
	report.Stop = fault.As(err)
	report.close(time.Now(), tally)
	if err != nil {
		return report, err
	}
	if err := report.writeDurably(f.join(reportFile)); err != nil {
		return report, err
	}
	f.finish(cleans(c, report))
	if c.Display.OnEvent != nil {
		c.Display.OnEvent(Notice{Text: "the job was already complete; only its files had not been renamed yet"})
		c.Display.OnEvent(Finished{Report: report})
	}
	return report, nil
}

// changes returns the changes that can be detected without asking the kernel for its
// files: it assumes that these are the same as before.
func (e *earlier) changes(c Config) []change {
	old := e.manifest.Fingerprint
	var files []string
	for _, file := range old.Kernel.Files {
		if _, err := os.Stat(file.Path); err == nil {
			files = append(files, file.Path)
		}
	}
	now, err := takeFingerprint(c, files)
	if err != nil && now.Input.Path == old.Input.Path {
		return nil // its input no longer exists and is no longer needed
	}
	if as, _, err := now.Input.asBefore(e); err == nil {
		now.Input = as
	}
	now.Kernel.Modules = currentModules(old.Kernel.Modules)
	return now.changes(old)
}

// findFinished returns the report of this job if it is already finished and its output
// is unchanged. Running a finished job again reports that it is complete.
func findFinished(ctx context.Context, c Config, f *folder) (Report, bool) {
	if c.Resume.Fresh || c.Output.Force || !resumable(c) {
		return Report{}, false
	}
	if c.inputs.streams() {
		return Report{}, false // this stream may be another one
	}
	if retry.Committed(f.path) {
		return Report{}, false // a retry is half merged, or its state is unknown
	}
	m, err := readManifest(f.join(manifestFile))
	if err != nil || len((&earlier{manifest: m}).changes(c)) > 0 {
		return Report{}, false
	}
	report, err := readReport(f.join(reportFile))
	if err != nil || report.Stop != nil || !f.outputUnchanged(ctx, c.Output.Path, report) {
		return Report{}, false
	}
	if _, err := os.Stat(m.Errors); m.Errors != "" && err != nil {
		return Report{}, false
	}
	report.Resumed = report.In
	f.freshen(c, m)
	if c.Display.OnEvent != nil {
		c.Display.OnEvent(Notice{Text: "the job is already finished", Code: CodeFinished})
		c.Display.OnEvent(Finished{Report: report})
	}
	return report, true
}

// outputBytes returns the size of an output, the sum of its parts for one in parts, or
// -1 if it does not exist.
func outputBytes(path string) int64 {
	if keepsParts(path) {
		m, err := commit.ReadManifest(path)
		if err != nil {
			return -1
		}
		return m.Bytes
	}
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

func outputOptions(c Config, f *folder) commit.Options {
	options := commit.Options{
		Path: c.Output.Path, Errors: c.Output.Errors, Replace: c.Output.Force, WorkDir: f.path, First: c.Input.Offset,
		KeepFailed: c.keepsFailed(), Format: c.format(), UnitBytes: c.unitBytes, Stdout: c.Output.Stdout, NoDurable: c.noDurable, DurableEvery: c.durableEvery,
	}
	if !c.framed {
		options.Arrays = c.Output.arrays()
	}
	if keepsParts(c.Output.Path) {
		options.PartBytes = c.Output.PartBytes
	}
	return options
}

// openOutput creates the output, or reopens it on resume.
func openOutput(ctx context.Context, p *prepared, f *folder) (*commit.Output, *commit.Journal, error) {
	options := outputOptions(p.config, f)
	options.Input = p.keeper
	if options.Stop = ctx.Done(); !p.config.framed {
		options.Layout = p.layout
	}
	if e := p.earlier; e != nil {
		options.Journal, p.created = e.journal, e.manifest.Created
		if e.stale { // before job.json names the new kernel
			if err := early.Forget(f.join(commit.PartsDir), 0); err != nil {
				return nil, nil, fault.Wrap(fault.Storage, err)
			}
		}
		if err := f.save(p.manifest(p.created)); err != nil {
			return nil, nil, err
		}
		output, err := commit.Resume(options, e.state)
		return output, e.journal, err
	}
	if !resumable(p.config) {
		output, err := commit.Create(options)
		return output, nil, err
	}
	// Create the journal first: the job exists from the moment job.json does.
	journal, err := commit.CreateJournal(f.join(journalFile))
	if err != nil {
		return nil, nil, err
	}
	crash.Point("journal-made")
	options.Journal, p.created = journal, time.Now().UTC()
	if err := f.save(p.manifest(p.created)); err != nil {
		journal.Close()
		return nil, nil, err
	}
	output, err := commit.Create(options)
	if err != nil {
		journal.Close()
		return nil, nil, err
	}
	return output, journal, nil
}

func (p *prepared) manifest(created time.Time) manifest {
	m := manifest{
		Version: manifestVersion, Created: created,
		Input: p.print.Input.Path, Output: absolute(p.config.Output.Path), Errors: p.print.Output.Errors,
		Kernel: p.config.Kernel.Name, Fingerprint: p.print, Cut: p.cut, Launch: p.launch(),
	}
	if p.layout != nil {
		m.Layout = p.layout.Get()
	}
	if p.spec.IsTable() {
		m.Declared = p.spec.Table.Input
	}
	if keepsParts(p.config.Output.Path) {
		m.Output += "/"
		m.Cut.PartBytes = p.config.Output.PartBytes
	}
	return m
}

func (p *prepared) launch() launch {
	l := launch{
		Dir: absolute(p.config.Dir), Python: p.interpreter, FetchPrivate: p.config.Fetch.AllowPrivate,
		GPUs: p.config.Devices.GPUs, GPUsPerWorker: p.config.Devices.GPUsPerWorker,
		BatchSize: p.config.Batching.Size, AutoBatch: p.config.Batching.Auto,
	}
	var path []string
	for _, dir := range filepath.SplitList(cmp.Or(p.config.pluginPath, os.Getenv("GPURUN_PLUGIN_PATH"))) {
		if dir != "" && !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Dir, dir)
		}
		path = append(path, dir)
	}
	l.PluginPath = strings.Join(path, string(filepath.ListSeparator))
	return l
}

// proven returns records that a working kernel can compute because an earlier run did,
// or nil.
func (p *prepared) proven() *chunk.Chunk {
	if p.earlier == nil || p.earlier.state.Proven == nil || p.config.inputs != nil {
		return nil
	}
	s := p.earlier.state.Proven
	return &chunk.Chunk{
		File: absolute(p.config.Input.Path), First: s.First, Records: s.Tally.Records,
		Offset: s.Start.Offset, Line: s.Start.Line, Length: s.Next.Offset - s.Start.Offset,
	}
}
