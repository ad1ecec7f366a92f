package orchestrator

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/retry"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// earlier is what earlier runs of the job have left in its folder. A new job has computed
// nothing, and its output is whole.
type earlier struct {
	resumes  bool // there is an unfinished job
	manifest *manifest
	journal  *commit.Journal // nil if the job cannot resume
	state    commit.State
	check    *outputCheck            // may run alongside the work
	notes    []string                // for the user
	answers  int64                   // logged, not committed
	stale    bool                    // another kernel or configuration gave the logged answers
	log      *input.Log              // of what was read of the input
	workers  map[string]scaler.Saved // as it left them in scalingFile
}

// newEarlier returns what there is before a new job.
func newEarlier() *earlier {
	return &earlier{manifest: &manifest{identity: identity{Spec: &spec.Spec{}}}, check: checkedOutput()}
}

func (e *earlier) close() {
	e.check.close()
	_ = e.journal.Close()
}

// begin starts a new job in the folder. It creates the journal first: the job exists from the
// moment job.json does.
func (e *earlier) begin(c *order, f *folder) (err error) {
	if err := f.begin(); err != nil {
		return err
	}
	if e.journal, err = c.Results.Journal(f.join(journalFile)); err != nil {
		return err
	}
	crash.Point("journal-made")
	e.manifest.Created = time.Now().UTC()
	return nil
}

// findEarlier returns the job to resume, or what there is before a new one.
func findEarlier(ctx context.Context, c *order, f *folder) (found *earlier, err error) {
	if c.Resume.Fresh {
		return newEarlier(), nil
	}
	m, err := f.unfinished()
	if err != nil {
		return nil, err
	}
	if m == nil {
		return newEarlier(), nil
	}
	journal, entries, err := commit.OpenJournal(f.join(journalFile))
	if err != nil {
		return nil, err
	}
	e := &earlier{manifest: m, journal: journal, check: checkedOutput(), workers: scaler.ReadSaved(f.join(scaler.File))}
	defer func() {
		if found != e {
			e.close()
		}
	}()
	if e.state, err = commit.Replay(entries); err != nil {
		return nil, err
	}
	if e.log, err = input.ReadLog(f.join(chunksFile)); err != nil {
		return nil, err
	}
	if c.repaired != nil {
		if err := e.forget(c.repaired.First, f); err != nil {
			return nil, err
		}
	} else if !e.computedAny() && !e.keepsPlan(c) && !e.keepsAnswers(c, f) {
		return newEarlier(), nil // there is nothing to resume
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
	e.resumes = true
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
		return fault.JobFiles.Wrap(err)
	}
	e.notes = append(e.notes, fmt.Sprintf("a damaged input was replaced and differs from record %d on: %d records are computed again", first, before-e.state.Done()))
	return nil
}

// computedAny reports whether the earlier run has computed anything.
func (e *earlier) computedAny() bool { return e.state.Done() > 0 || e.state.Complete }

// keepsPlan reports whether a job that has computed nothing keeps its plan.
func (e *earlier) keepsPlan(c *order) bool {
	return c.Results.SamePlan(e.manifest.Spec.Results) && len(e.changes(c)) == 0
}

// keepsAnswers reports whether a job that has committed nothing is resumed nevertheless,
// because workers have logged answers of its kernel.
func (e *earlier) keepsAnswers(c *order, f *folder) bool {
	return commit.HasEarly(f.join(commit.PartsDir)) && len(e.changes(c)) == 0
}

// finishEarlier finishes a job that was killed when only the final renames were
// missing.
func finishEarlier(c *order, f *folder, e *earlier) (Report, error) {
	if err := spec.CheckChanges(e.changes(c), c.Resume.AcceptChanges); err != nil {
		return Report{}, err
	}
	tally := e.state.Durable.Tally
	report := Report{
		Input: c.Input.Path, Output: c.Output.Path, Errors: c.Output.Errors, Format: c.Format, Kernel: c.Kernel.Name, Folder: f.path,
		Started: time.Now(), In: tally.Records, Resumed: tally.Records, Blank: e.manifest.Cut.Blank,
	}
	report.noteOutput(e.state.ResultSum(), e.state.Unencoded(), c.Results.Format)
	_, layout := c.Results.Stored(e.manifest.Layout)
	options := c.Commit(f.path, layout)
	options.Layout.Settle()
	report.noteArrays(options.Arrays, e.state.ArraySums(options))
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
func (e *earlier) changes(c *order) []spec.Change {
	old := e.manifest.identity
	var files []string
	for _, file := range old.Kernel.Files {
		if _, err := os.Stat(file.Path); err == nil {
			files = append(files, file.Path)
		}
	}
	now, err := identify(c, files)
	if err != nil && now.Input.Path == old.Input.Path {
		return nil // its input no longer exists and is no longer needed
	}
	if as, _, err := now.Input.asBefore(e); err == nil {
		now.Input = as
	}
	now.Kernel.Modules = currentModules(old.Kernel.Modules)
	return now.changes(old)
}

// findFinished returns the report of this job if it is already finished. Running a finished job
// again reports that it is complete.
func findFinished(ctx context.Context, c *order, f *folder) (Report, bool) {
	report, done := isFinished(ctx, c, f)
	if done && c.Display.OnEvent != nil {
		c.Display.OnEvent(Notice{Text: "the job is already finished", Code: fault.JobFinished})
		c.Display.OnEvent(Finished{Report: report})
	}
	return report, done
}

// isFinished returns the report of this job if it is already finished and its output is
// unchanged.
func isFinished(ctx context.Context, c *order, f *folder) (Report, bool) {
	if c.Resume.Fresh || c.Output.Force {
		return Report{}, false
	}
	if c.inputs.Streams() {
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
	if err != nil || report.Stop != nil || !f.outputUnchanged(ctx, c.Results.Target, report) {
		return Report{}, false
	}
	if path := m.Spec.Output.Errors; path != "" && spec.At(path).Bytes() < 0 {
		return Report{}, false
	}
	report.Resumed = report.In
	f.freshen(c, m)
	return report, true
}

// openOutput creates the output, or reopens it on resume.
func openOutput(ctx context.Context, p *prepared, f *folder) (*commit.Output, error) {
	e, options := p.earlier, p.config.Commit(f.path, p.layout)
	options.Input, options.Stop = p.source.Source, ctx.Done()
	options.UnitBytes, options.NoDurable, options.DurableEvery = p.config.Options.unitBytes, p.config.Options.noDurable, p.config.Options.durableEvery
	options.Journal, p.job = e.journal, p.manifest(e.manifest.Created)
	if e.stale { // before job.json names the new kernel
		if err := early.Forget(f.join(commit.PartsDir), 0); err != nil {
			return nil, fault.JobFiles.Wrap(err)
		}
	}
	if err := f.save(p.job); err != nil {
		return nil, err
	}
	return commit.Resume(options, e.state)
}

func (p *prepared) manifest(created time.Time) manifest {
	m := manifest{Version: manifestVersion, Created: created, identity: p.print, Cut: p.cut, Layout: p.layout.Get()}
	if p.spec.IsTable() {
		m.Declared = p.spec.Table.Input
	}
	return m
}

// proven returns records that a working kernel can compute because an earlier run did,
// or nil.
func (p *prepared) proven() *chunk.Chunk {
	file := p.config.inputs.Plain()
	if p.earlier.state.Proven == nil || file == "" {
		return nil
	}
	s := p.earlier.state.Proven
	return &chunk.Chunk{
		File: absolute(file), First: s.First, Records: s.Tally.Records,
		Offset: s.Start.Offset, Line: s.Start.Line, Length: s.Next.Offset - s.Start.Offset,
	}
}
