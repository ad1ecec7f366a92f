package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/wire"
)

// prepared is a job that is ready to start.
type prepared struct {
	*emitter
	config Config
	plan   Plan
	source input.Source
	input  *inputWatch    // of one plain file, else nil
	sums   *input.SumsLog // for an input that is cut while it is read, else nil
	// For an input that is not one plain file:
	watch     *filesWatch
	chunkLog  *input.ChunkLog
	keeper    input.Keeper
	located   input.Located
	estimated input.Estimated
	skips     skips
	first     atomic.Pointer[sample] // of a stream, once it is read
	runDir    string                 // short-lived files with short names: sockets
	// figures is what the kernels count; nil if they compute batches.
	figures     *figures.File
	figuresPath string
	spentBefore map[string]int64 // in earlier runs
	// print is the fingerprint and cut is how the input was cut; set only for a file.
	print   fingerprint
	cut     input.Cut
	created time.Time // when the job was created; zero for a stream
	asked   bool      // the kernel has described itself
	files   []string  // the kernel's
	data    []string  // those of them that are not code
	// programs are those files as the fingerprint has read them.
	programs []wire.Program
	// interpreter is the Python that runs the kernel, "" if none does.
	interpreter string
	// earlier is the job being resumed, nil for a new one.
	earlier   *earlier
	spec      *columns.Spec   // of a job with columns, else nil
	layout    *columns.Shared // the same
	preview   bool            // only a plan is wanted
	oneChunk  bool            // each slot gets one chunk
	selection gpu.Selection
	// deviceNote is what the plan says about the devices, empty for nothing.
	deviceNote string
	idle       []gpu.Device // selected or claimed, but not filling a group
	reserve    []Slot       // slots that the plan allows beyond those that start
	// resumedWorkers is how many workers an earlier run found to be best.
	resumedWorkers map[string]savedWorkers
	claim          *Claim        // nil without Config.Devices.Claim
	registry       *gpu.Registry // of the slots' devices; every slot of the plan is acquired
}

func (p *prepared) close() {
	if p.source != nil {
		_ = p.source.Close()
	}
	p.input.close()
	_ = p.sums.Close()
	_ = p.chunkLog.Close()
	p.figures.Close()
	if p.claim != nil {
		p.claim.Release()
	}
	_ = os.RemoveAll(p.runDir)
}

// prepare checks everything that can be checked before a worker starts, in the order in
// which a user would want to see the errors. It calls note with the temporary folder's
// path before creating it.
func prepare(ctx context.Context, config Config, before *earlier, preview bool, note func(string)) (_ *prepared, err error) {
	if err := checkOpenFiles(1); err != nil {
		return nil, err
	}
	if err := checkInput(config); err != nil {
		return nil, err
	}
	p := &prepared{emitter: &emitter{to: config.Display.OnEvent}, config: config, earlier: before, preview: preview}
	if before != nil {
		p.resumedWorkers = before.workers
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.beginPlan()
	if err := p.makeRunDir(note); err != nil {
		return nil, err
	}
	p.setLayout()
	if err := p.findDevices(ctx); err != nil {
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
	if err := p.claimDevices(ctx); err != nil {
		return nil, err
	}
	p.noteIdle()
	p.keepSlots(p.usefulSlots())
	if len(p.plan.Slots) == 0 || p.plan.Info.NoDevice {
		p.dropDeviceNote()
	}
	p.reserveSlots()
	p.keepClaimed()
	if err := checkOpenFiles(len(p.plan.Slots)); err != nil {
		return nil, err
	}
	return p, nil
}

// beginPlan fills in what the settings alone say.
func (p *prepared) beginPlan() {
	c := p.config
	p.plan = Plan{
		Files: c.fileCount(), Input: c.Input.Path, Output: c.Output.Path, Format: c.Format, Kernel: c.Kernel.Name, Records: -1,
		Errors: c.Output.Errors, Fetch: c.Fetch.Members, FetchRoot: c.Fetch.Root,
	}
	for _, a := range c.Output.arrays() {
		p.plan.Arrays = append(p.plan.Arrays, PlannedArray{Path: a.Path, Column: c.Output.Arrays[a.Column].Column, Mask: a.Mask})
	}
	p.plan.Notes = append(streamNote(c), leftNote(c.leftOut)...)
	p.plan.Notes = append(p.plan.Notes, c.inputs.membersNote()...)
	p.plan.Notes = append(p.plan.Notes, p.streamedIDs()...)
	if c.Kernel.ExecMode == "stream" && c.Kernel.ExecID == "" {
		p.plan.Notes = append(p.plan.Notes, "the lines of the program are matched to records by position: a line too many or too few would shift all later ones; "+
			"exec-id proves each line")
	}
	if strings.EqualFold(filepath.Ext(c.Output.Path), ".json") && !c.format().Encodes() {
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s will have a record in each line (JSON lines), not one JSON document", c.Output.Path))
	}
}

// makeRunDir creates the job's temporary folder.
func (p *prepared) makeRunDir(note func(string)) error {
	path, short, err := makeRunDir(note)
	p.runDir = path
	if err != nil {
		return fault.New(fault.Storage, "make temporary folder: %w", err)
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
	group.Go(func() error { return p.openInput(groupCtx, p.config.Batching.Size) })
	group.Go(func() error { return p.checkCustomIDs(groupCtx) })
	var notes []string
	if !p.preview {
		group.Go(func() error { notes = killAbandoned(); return nil })
	}
	err := group.Wait()
	p.plan.Notes = append(p.plan.Notes, notes...)
	if err != nil && ctx.Err() != nil {
		return fault.New(fault.Canceled, "stopped before anything was started")
	}
	return err
}

// askKernel lets the kernel describe itself, once.
func (p *prepared) askKernel(ctx context.Context) error {
	if p.asked {
		return nil
	}
	key := poolKey(p.setup(""), Slot{})
	ready, err := p.config.Pool.described(key), error(nil)
	if ready == nil {
		var asked wire.Ready
		asked, err = describeKernel(ctx, p, "plan")
		switch fault.KindOf(err) {
		case fault.Worker, fault.Crash: // possibly by chance; the kernel reports its own failures
			asked, err = describeKernel(ctx, p, "plan-again")
		}
		if ready = &asked; err == nil {
			p.config.Pool.describe(key, asked)
		}
	}
	p.plan.Info, p.files, p.data, p.interpreter = KernelInfo(ready.Info), ready.Files, ready.Data, ready.Interpreter
	p.asked = err == nil
	return unusable(err)
}

// compare takes the fingerprint and compares it with the earlier job's.
func (p *prepared) compare() (err error) {
	for _, path := range p.files {
		p.programs = append(p.programs, wire.Program{Path: path, State: filesum.State(path)})
	}
	if p.print, err = takeFingerprint(p.config, p.files); err != nil {
		return err
	}
	for i := range p.programs {
		p.programs[i].Sum = p.print.Kernel.Files[i].Sum
	}
	if p.input != nil {
		p.print.Input.note(p.input.was) // as it was before it was cut
	}
	if p.earlier == nil {
		return nil
	}
	p.print.Kernel.dropNew(p.earlier.manifest.Fingerprint.Kernel, p.data)
	modules := currentModules(p.earlier.manifest.Fingerprint.Kernel.Modules)
	p.print.Kernel.Modules = modules
	now, touched := p.print, false
	if now.Input, touched, err = p.print.Input.asBefore(p.earlier); err != nil {
		return err
	}
	if touched {
		p.earlier.notes = append(p.earlier.notes, touchedNote)
	}
	if changes := now.changes(p.earlier.manifest.Fingerprint); len(changes) > 0 && (p.earlier.computedAny() || p.earlier.answers > 0) {
		err = checkChanges(changes, p.config.Resume.AcceptChanges)
		p.earlier.forgetAnswers()
	}
	p.print.Kernel.Modules = present(modules)
	return err
}
