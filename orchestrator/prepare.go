package orchestrator

import (
	"context"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// prepared is a job that is ready to start.
type prepared struct {
	*emitter
	config   *order
	plan     Plan
	count    *input.Count   // of an input that is counted before the job starts, else nil
	source   *source.Source // open from openSource on
	skips    skips
	first    atomic.Pointer[sample] // of a stream, once it is read
	runDir   string                 // short-lived files with short names: sockets
	spending spending
	// print is the fingerprint and cut is how the input was cut.
	print identity
	job   manifest // job.json, once it is written
	cut   input.Cut
	asked bool     // the kernel has described itself
	files []string // the kernel's
	data  []string // those of them that are not code
	// programs are those files as the fingerprint has read them.
	programs []wire.Program
	// interpreter is the Python that runs the kernel, "" if none does.
	interpreter string
	earlier     *earlier
	spec        *columns.Spec   // of a job with columns, else nil
	layout      *columns.Shared // the same
	preview     bool            // only a plan is wanted
	oneChunk    bool            // each slot gets one chunk
	staff       *staff
}

func (p *prepared) close() {
	_ = p.source.Close()
	p.spending.file.Close()
	p.staff.release()
	_ = os.RemoveAll(p.runDir)
}

// prepare checks everything that can be checked before a worker starts, in the order in
// which a user would want to see the errors. It calls note with the temporary folder's
// path before creating it.
func prepare(ctx context.Context, config *order, before *earlier, preview bool, note func(string)) (_ *prepared, err error) {
	if err := checkOpenFiles(1); err != nil {
		return nil, err
	}
	if err := config.inputs.Check(); err != nil {
		return nil, err
	}
	p := &prepared{emitter: &emitter{to: config.Display.OnEvent}, config: config, earlier: before, cut: before.manifest.Cut, preview: preview, spending: spending{limits: config.Resume}}
	p.staff = &staff{emitter: p.emitter, config: config, plan: &p.plan, resumed: before.workers}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.beginPlan()
	if err := p.makeRunDir(note); err != nil {
		return nil, err
	}
	p.spec, p.layout = config.Results.Stored(before.manifest.Layout)
	if err := p.staff.findDevices(ctx, p.askKernel); err != nil {
		return nil, err
	}
	if err := p.askAndCount(ctx); err != nil {
		return nil, err
	}
	if err := p.fitKernel(false); err != nil {
		return nil, err
	}
	if err := p.checkMembers(ctx); err != nil {
		return nil, err
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	p.describeChunks()
	// Claim last: a user must not wait for a GPU only to see an error, and the number
	// of devices that there is work for is known only now.
	changed, err := p.staff.claimDevices(ctx, p.usefulSlots(), preview)
	if err != nil {
		return nil, err
	}
	if changed {
		if err := p.fitKernel(true); err != nil {
			return nil, err
		}
		p.describeChunks()
	}
	p.staff.settle(p.usefulSlots())
	if err := checkOpenFiles(len(p.plan.Slots)); err != nil {
		return nil, err
	}
	return p, nil
}

// beginPlan fills in what the settings alone say.
func (p *prepared) beginPlan() {
	c := p.config
	p.plan = Plan{
		Input: c.Input.Path, Output: c.Output.Path, Format: c.Format, Kernel: c.Kernel.Name, Records: -1,
		Errors: c.Output.Errors, Fetch: c.Fetch.Members, FetchRoot: c.Fetch.Root,
	}
	if !c.inputs.Streams() {
		p.plan.Files = len(c.inputs.Files)
	}
	for _, a := range c.Results.Arrays {
		p.plan.Arrays = append(p.plan.Arrays, PlannedArray{Path: a.Path, Column: c.Output.Arrays[a.Column].Column, Mask: a.Mask})
	}
	p.plan.Notes = append(streamNote(c), leftNote(c.inputs.LeftOut)...)
	if names := c.inputs.Members(); len(names) > 0 {
		p.plan.Notes = append(p.plan.Notes, "records get members from the names of their folders: "+some(names))
	}
	p.plan.Notes = append(p.plan.Notes, p.streamedIDs()...)
	p.plan.Notes = append(p.plan.Notes, c.Notes...)
}

// makeRunDir creates the job's temporary folder.
func (p *prepared) makeRunDir(note func(string)) error {
	path, short, err := makeRunDir(note)
	p.runDir = path
	if err != nil {
		return fault.TempFolder.New("make temporary folder: %w", err)
	}
	if short != "" {
		p.plan.Notes = append(p.plan.Notes, short)
	}
	return nil
}

// askAndCount asks the kernel and counts the input concurrently: the count depends on the
// kernel only if the kernel asks for another batch size.
func (p *prepared) askAndCount(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.askKernel(groupCtx) })
	if !p.earlier.resumes { // otherwise that run has counted, cut and checked it
		group.Go(func() error { return p.countInput(groupCtx, p.config.Batching.Size) })
		group.Go(func() error { return p.checkCustomIDs(groupCtx) })
	}
	var notes []string
	if !p.preview {
		group.Go(func() error { notes = killAbandoned(); return nil })
	}
	err := group.Wait()
	p.plan.Notes = append(p.plan.Notes, notes...)
	if err != nil && ctx.Err() != nil {
		return fault.Interrupted.New("stopped before anything was started")
	}
	return err
}

// askKernel lets the kernel describe itself, once.
func (p *prepared) askKernel(ctx context.Context) error {
	if p.asked {
		return nil
	}
	ready, err := p.process().Describe(ctx, p.config.Pool.kept())
	p.plan.Info, p.files, p.data, p.interpreter = ready.Info, ready.Files, ready.Data, ready.Interpreter
	p.asked = err == nil
	return unusable(err)
}

// compare takes the fingerprint and compares it with the earlier job's.
func (p *prepared) compare() (err error) {
	for _, path := range p.files {
		p.programs = append(p.programs, wire.Program{Path: path, State: filesum.State(path)})
	}
	if p.print, err = identify(p.config, p.files); err != nil {
		return err
	}
	p.print.Kernel.Interpreter = p.interpreter
	for i := range p.programs {
		p.programs[i].Sum = p.print.Kernel.Files[i].Sum
	}
	old := p.earlier.manifest.identity
	if p.config.Kernel.Name == old.Spec.Kernel.Name {
		p.print.Kernel.dropNew(old.Kernel, p.data)
	}
	modules := currentModules(old.Kernel.Modules)
	p.print.Kernel.Modules = modules
	now, touched := p.print, false
	if now.Input, touched, err = p.print.Input.asBefore(p.earlier); err != nil {
		return err
	}
	if touched {
		p.earlier.notes = append(p.earlier.notes, touchedNote)
	}
	if p.earlier.computedAny() || p.earlier.answers > 0 {
		if changes := now.changes(old); len(changes) > 0 {
			err = spec.CheckChanges(changes, p.config.Resume.AcceptChanges)
			p.earlier.forgetAnswers()
		}
	}
	p.print.Kernel.Modules = present(modules)
	return err
}
