package folder

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// Earlier is what earlier runs of the job have left in its folder. A new job has computed
// nothing, and its output is whole.
type Earlier struct {
	Resumes  bool // there is an unfinished job
	Manifest *Manifest
	Journal  *commit.Journal // nil if the job cannot resume
	State    commit.State
	Check    *outputCheck // may run alongside the work
	Notes    []string     // for the user
	Answers  int64        // logged, not committed
	Stale    bool         // another kernel or configuration gave the logged answers
	Scaling  string       // the file with the number of workers that it found best; "" for a new job

	log *input.Log // of what was read of the input
}

// NewEarlier returns what there is before a new job.
func NewEarlier() *Earlier {
	return &Earlier{Manifest: &Manifest{Identity: Identity{Spec: &spec.Spec{}}}, Check: checkedOutput()}
}

// Close ends the check and closes the journal.
func (e *Earlier) Close() {
	e.Check.close()
	_ = e.Journal.Close()
}

// addNote adds a line for the user.
func (e *Earlier) addNote(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// Begin starts a new job in the folder. It creates the journal first: the job exists from the
// moment job.json does.
func (e *Earlier) Begin(s *spec.Spec, f *Folder) (err error) {
	if e.Resumes {
		return nil
	}
	if err := f.Begin(); err != nil {
		return err
	}
	if e.Journal, err = s.Results.Journal(f.Journal()); err != nil {
		return err
	}
	crash.Point("journal-made")
	e.Manifest.Created = time.Now().UTC()
	return nil
}

// Resume is the job that runs now, and how it resumes an earlier one.
type Resume struct {
	Spec   *spec.Spec
	Inputs *source.Inputs
	// Repaired, if set, is where a damaged input that was replaced differs from what an
	// earlier run has read.
	Repaired *input.Repaired
	// CheckWait is how long the work waits for the check of the output; CheckAll: until it is done.
	CheckAll  bool
	CheckWait time.Duration
}

// Earlier returns the job to resume, or what there is before a new one.
func (f *Folder) Earlier(ctx context.Context, r Resume) (found *Earlier, err error) {
	if r.Spec.Resume.Fresh {
		return NewEarlier(), nil
	}
	m, err := f.Unfinished()
	if err != nil {
		return nil, err
	}
	if m == nil {
		return NewEarlier(), nil
	}
	journal, entries, err := commit.OpenJournal(f.Journal())
	if err != nil {
		return nil, err
	}
	e := &Earlier{Manifest: m, Journal: journal, Check: checkedOutput(), Scaling: f.Scaling()}
	defer func() {
		if found != e {
			e.Close()
		}
	}()
	if e.State, err = commit.Replay(entries); err != nil {
		return nil, err
	}
	if e.log, err = input.ReadLog(f.Chunks()); err != nil {
		return nil, err
	}
	logged := commit.HasEarly(f.Parts())
	switch {
	case r.Repaired != nil:
		if err := e.forget(r.Repaired.First, f); err != nil {
			return nil, err
		}
	case e.ComputedAny():
	// A job that has committed nothing keeps its plan, and the answers that workers have logged.
	case !(logged || r.Spec.Results.SamePlan(m.Spec.Results)) || len(e.Changes(r.Spec, r.Inputs)) > 0:
		return NewEarlier(), nil // there is nothing to resume
	}
	if lost := journal.Lost(); lost > 0 {
		e.addNote("the journal is damaged after its last durable point: %d entries are dropped, and their records are computed again", lost)
	}
	if err := f.MakeDirs(); err != nil {
		return nil, err
	}
	if err := e.checkOutput(ctx, r, f); err != nil {
		return nil, err
	}
	if !e.State.Complete {
		if err := e.State.Verify(f.Parts(), journal); err != nil {
			return nil, err
		}
	}
	e.State.Durable.Next = max(e.State.Durable.Next, r.Spec.Input.Offset) // nothing may be durable yet
	if logged {
		e.Answers = f.Answers(e.State)
	}
	e.Resumes = true
	return e, nil
}

// forget discards what earlier runs have computed from a record on, because they have read it
// from a damaged file.
func (e *Earlier) forget(first int64, f *Folder) error {
	before := e.State.Done()
	if err := e.State.CutBackTo(first, e.Journal); err != nil {
		return err
	}
	if err := early.Forget(f.Parts(), first); err != nil {
		return fault.JobFiles.Wrap(err)
	}
	e.addNote("a damaged input was replaced and differs from record %d on: %d records are computed again", first, before-e.State.Done())
	return nil
}

// forgetAnswers drops the logged answers of a job whose kernel or configuration has changed: only
// committed results may come from the old one.
func (e *Earlier) forgetAnswers() {
	if e.Answers > 0 {
		e.addNote("%d answers that were not committed yet come from before the change: their records are computed again", e.Answers)
	}
	e.Stale, e.Answers = true, 0
}

// ComputedAny reports whether the earlier run has computed anything.
func (e *Earlier) ComputedAny() bool { return e.State.Done() > 0 || e.State.Complete }

// Reached returns the number behind the last record that the earlier run has computed; 0 if it
// has computed none.
func (e *Earlier) Reached() int64 {
	if end := e.State.End(); end > e.Manifest.Spec.Input.Offset {
		return end
	}
	return 0
}

// Compare refuses to resume a job that is another one now, except for accepted changes.
func (e *Earlier) Compare(now Identity, accepted []string) (err error) {
	touched := false
	if now.Input, touched, err = e.Manifest.asBefore(now.Input, e.log, e.Reached()); err != nil {
		return err
	}
	if touched {
		e.addNote("the input was touched after the job started; its content is unchanged")
	}
	if e.ComputedAny() || e.Answers > 0 {
		if changes := now.Changes(e.Manifest.Identity); len(changes) > 0 {
			err = spec.CheckChanges(changes, accepted)
			e.forgetAnswers()
		}
	}
	return err
}

// Changes returns what has changed since the job began; see Manifest.Changes.
func (e *Earlier) Changes(s *spec.Spec, inputs *source.Inputs) []spec.Change {
	return e.Manifest.changes(s, inputs, e.log, e.Reached())
}

// Changes returns the changes since the job began that can be detected without asking the kernel
// for its files: it assumes that these are the same as before.
func (m *Manifest) Changes(s *spec.Spec, inputs *source.Inputs) []spec.Change {
	return m.changes(s, inputs, nil, 0)
}

// changes also knows what an unfinished job has read of its input, and the number behind the last
// record that it has computed.
func (m *Manifest) changes(s *spec.Spec, inputs *source.Inputs, log *input.Log, done int64) []spec.Change {
	old := m.Identity
	var files []string
	for _, file := range old.Kernel.Files {
		if _, err := os.Stat(file.Path); err == nil {
			files = append(files, file.Path)
		}
	}
	now, err := Identify(s, inputs, files)
	if err != nil && now.Input.Path == old.Input.Path {
		return nil // its input no longer exists and is no longer needed
	}
	if as, _, err := m.asBefore(now.Input, log, done); err == nil {
		now.Input = as
	}
	now.Kernel.Modules = old.Kernel.CurrentModules()
	return now.Changes(old)
}
