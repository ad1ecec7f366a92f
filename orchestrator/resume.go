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

// note adds a line for the user.
func (e *earlier) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// unlessRead returns a check of the input's first chunk, unless an earlier run has made it.
func (e *earlier) unlessRead(check func(chunk.Chunk) error) func(chunk.Chunk) error {
	if e.resumes {
		return func(chunk.Chunk) error { return nil }
	}
	return check
}

// begin starts a new job in the folder. It creates the journal first: the job exists from the
// moment job.json does.
func (e *earlier) begin(o *order, f *folder) (err error) {
	if e.resumes {
		return nil
	}
	if err := f.begin(); err != nil {
		return err
	}
	if e.journal, err = o.Results.Journal(f.join(journalFile)); err != nil {
		return err
	}
	crash.Point("journal-made")
	e.manifest.Created = time.Now().UTC()
	return nil
}

// findEarlier returns the job to resume, or what there is before a new one.
func findEarlier(ctx context.Context, o *order, f *folder) (found *earlier, err error) {
	if o.Resume.Fresh {
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
	logged := commit.HasEarly(f.join(commit.PartsDir))
	switch {
	case o.repaired != nil:
		if err := e.forget(o.repaired.First, f); err != nil {
			return nil, err
		}
	case e.computedAny():
	// A job that has committed nothing keeps its plan, and the answers that workers have logged.
	case !(logged || o.Results.SamePlan(m.Spec.Results)) || len(m.changes(o, e.log, e.reached())) > 0:
		return newEarlier(), nil // there is nothing to resume
	}
	if lost := journal.Lost(); lost > 0 {
		e.note("the journal is damaged after its last durable point: %d entries are dropped, and their records are computed again", lost)
	}
	if err := f.makeDirs(); err != nil {
		return nil, err
	}
	if err := e.checkOutput(ctx, o, f); err != nil {
		return nil, err
	}
	if !e.state.Complete {
		if err := e.state.Verify(f.join(commit.PartsDir), journal); err != nil {
			return nil, err
		}
	}
	e.state.Durable.Next = max(e.state.Durable.Next, o.Input.Offset) // nothing may be durable yet
	if logged {
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
	e.note("a damaged input was replaced and differs from record %d on: %d records are computed again", first, before-e.state.Done())
	return nil
}

// forgetAnswers drops the logged answers of a job whose kernel or configuration has changed: only
// committed results may come from the old one.
func (e *earlier) forgetAnswers() {
	if e.answers > 0 {
		e.note("%d answers that were not committed yet come from before the change: their records are computed again", e.answers)
	}
	e.stale, e.answers = true, 0
}

// tallyOf counts the results that a state holds.
func tallyOf(state commit.State) (t chunk.Tally) {
	t.Add(state.Durable.Tally)
	for _, segment := range state.Segments {
		t.Add(segment.Tally)
	}
	return t
}

// computedAny reports whether the earlier run has computed anything.
func (e *earlier) computedAny() bool { return e.state.Done() > 0 || e.state.Complete }

// changes returns the changes that can be detected without asking the kernel for its
// files: it assumes that these are the same as before. log is what an unfinished job has read of
// its input, done the number behind the last record that it has computed.
func (m *manifest) changes(o *order, log *input.Log, done int64) []spec.Change {
	old := m.identity
	var files []string
	for _, file := range old.Kernel.Files {
		if _, err := os.Stat(file.Path); err == nil {
			files = append(files, file.Path)
		}
	}
	now, err := identify(o, files)
	if err != nil && now.Input.Path == old.Input.Path {
		return nil // its input no longer exists and is no longer needed
	}
	if as, _, err := m.asBefore(now.Input, log, done); err == nil {
		now.Input = as
	}
	now.Kernel.Modules = currentModules(old.Kernel.Modules)
	return now.changes(old)
}
