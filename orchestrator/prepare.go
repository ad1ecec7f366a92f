package orchestrator

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// prepared is a job that is ready to start: what the settings decide, and what the input, the
// devices and the kernel add to that.
type prepared struct {
	config  *order
	plan    Plan
	earlier *folder.Earlier
	staff   *staff
	members *members
	lane    lane
	count   *input.Count // of an input that is counted before the job starts, else nil
	cut     input.Cut    // how the input was cut
	// kernel is how the kernel describes itself, nil until it is asked; programs are its files as
	// the fingerprint has read them.
	kernel   *wire.Ready
	programs []wire.Program
	columns  *columns.Spec   // of a job with columns, else nil
	layout   *columns.Shared // the same
	job      folder.Manifest // complete once job.json is written
	source   *source.Source  // open from openSource on
	skips    skips
	runDir   string // short-lived files with short names: sockets
	spending spending
}

// newPrepared starts with what the settings and earlier runs decide. It calls note with the
// temporary folder's path before creating it.
func newPrepared(o *order, before *folder.Earlier, note func(string)) (*prepared, error) {
	p := &prepared{config: o, earlier: before, cut: before.Manifest.Cut, spending: spending{limits: o.Resume}}
	p.staff = &staff{config: o, plan: &p.plan, resumed: scaler.ReadSaved(before.Scaling)}
	p.members = &members{config: o, plan: &p.plan}
	p.plan = o.plan()
	known := before.Manifest.Layout
	if known == nil {
		var err error
		if known, err = o.agreedLayout(); err != nil {
			return p, err
		}
	}
	p.columns, p.layout = o.Results.Stored(known)
	path, short, err := folder.MakeTemp(note)
	if p.runDir = path; err != nil {
		return p, fault.TempFolder.New("make temporary folder: %w", err)
	}
	if short != "" {
		p.plan.note(short)
	}
	return p, nil
}

func (p *prepared) close() {
	_ = p.source.Close()
	p.spending.file.Close()
	p.staff.release()
	_ = os.RemoveAll(p.runDir)
}

// prepare checks everything that can be checked before a worker starts, in the order in
// which a user would want to see the errors.
func prepare(ctx context.Context, o *order, before *folder.Earlier, note func(string)) (_ *prepared, err error) {
	if err := checkOpenFiles(1); err != nil {
		return nil, err
	}
	if err := o.inputs.Check(); err != nil {
		return nil, err
	}
	p, err := newPrepared(o, before, note)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for _, step := range []func() error{
		func() error { return err },
		func() error { return p.staff.findDevices(ctx, p.askKernel) },
		func() error { return p.askAndCount(ctx) },
		p.fit,
		func() error { p.noteBytes(); return p.members.check(ctx) },
		p.compare,
		// Claim last: a user must not wait for a GPU only to see an error, and the number
		// of devices that there is work for is known only now.
		func() error { return p.staff.claimDevices(ctx, p.plan.usefulSlots(), p.fit) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	p.staff.startSlots(p.plan.usefulSlots())
	return p, checkOpenFiles(len(p.plan.Slots))
}

// plan returns what the settings and the names of the input say.
func (o *order) plan() Plan {
	plan := Plan{
		Input: o.Input.Path, Output: o.Output.Path, Format: o.Format, Kernel: o.Kernel.Name, Records: -1,
		Errors: o.Output.Errors, Fetch: o.Fetch.Members, FetchRoot: o.Fetch.Root,
		Notes: []string{}, // an empty list in JSON, not null
	}
	why := o.Results.Unresumable()
	if why != "" {
		plan.note("this job cannot be resumed if it is interrupted: " + why)
	} else if o.inputs.Streams() && !o.Resume.Spool {
		plan.note("if this job is interrupted, the same command resumes it only if the same bytes arrive again: its input is a stream")
	}
	plan.note(leftNote(o.inputs.LeftOut)...)
	if names := o.inputs.Members(); len(names) > 0 {
		plan.note("records get members from the names of their folders: " + some(names))
	}
	if !o.inputs.Streams() {
		plan.Files = len(o.inputs.Files)
	} else if len(o.Results.Unique) > 0 {
		plan.note("the input is a stream, so gpurun does not check whether a custom_id occurs more than once")
	}
	plan.note(o.Notes...)
	for _, a := range o.Results.Arrays {
		plan.Arrays = append(plan.Arrays, PlannedArray{Path: a.Path, Column: o.Output.Arrays[a.Column].Column, Mask: a.Mask})
	}
	return plan
}

// leftNote says which outputs of other jobs are not read.
func leftNote(left []string) []string {
	switch len(left) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("not read: %s is the output of another gpurun job; to read it, name it as an input too", left[0])}
	}
	return []string{fmt.Sprintf("not read: %s and %d more are outputs of other gpurun jobs; to read them, name them as inputs too", left[0], len(left)-1)}
}

// askAndCount asks the kernel and counts the input concurrently.
func (p *prepared) askAndCount(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.askKernel(groupCtx) })
	if !p.earlier.Resumes { // otherwise that run has counted, cut and checked it
		group.Go(func() (err error) {
			p.count, err = p.config.inputs.Count(groupCtx, p.config.Input.Split, p.config.limits(), p.config.Input.Place)
			return err
		})
		group.Go(func() error { return p.config.checkUnique(groupCtx) })
	}
	var notes []string
	if !p.config.preview {
		group.Go(func() error { notes = killAbandoned(); return nil })
	}
	err := group.Wait()
	p.plan.note(notes...)
	if err != nil && ctx.Err() != nil {
		return fault.Interrupted.New("stopped before anything was started")
	}
	return err
}

// killAbandoned kills processes left over from jobs whose guards were killed together
// with everything else. No other process cleans those up, and they may hold a device
// that this job is about to use. It returns notes for the user.
func killAbandoned() (notes []string) {
	found, stuck := proc.KillAbandoned(wire.MarkVariable)
	if found > 0 {
		notes = append(notes, fmt.Sprintf("killed %s left over from an earlier gpurun that was killed", counted(found, "process", "processes")))
	}
	for _, s := range stuck {
		notes = append(notes, fmt.Sprintf("a process left over from an earlier gpurun cannot be killed: %s; the device it uses may not work", s))
	}
	return notes
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// askKernel lets the kernel describe itself, once.
func (p *prepared) askKernel(ctx context.Context) error {
	if p.kernel != nil {
		return nil
	}
	ready, err := p.process().Describe(ctx, p.config.Pool.kept())
	switch fault.KindOf(err) {
	case fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.OOM:
		fault.As(err).Kind = fault.Incompatible
	case fault.Worker: // a system limit, or the worker was killed: not the kernel's fault
		fault.As(err).Kind = fault.Stopped
	}
	if err == nil {
		p.kernel, p.plan.Info = &ready, ready.Info
	}
	return err
}

// compare takes the fingerprint and compares it with the earlier job's.
func (p *prepared) compare() (err error) {
	for _, path := range p.kernel.Files {
		p.programs = append(p.programs, wire.Program{Path: path, State: filesum.State(path)})
	}
	if p.job.Identity, err = folder.Identify(p.config.Spec, p.config.inputs, p.kernel.Files); err != nil {
		return err
	}
	kernel, e := &p.job.Kernel, p.earlier
	for i, file := range kernel.Files {
		p.programs[i].Sum = file.Sum
	}
	old := e.Manifest.Kernel
	if p.config.Kernel.Name == e.Manifest.Spec.Kernel.Name {
		kernel.DropNew(old, p.kernel.Data)
	}
	kernel.Interpreter, kernel.Modules = p.kernel.Interpreter, old.CurrentModules()
	err = e.Compare(p.job.Identity, p.config.Resume.AcceptChanges)
	kernel.DropMissing()
	return err
}
