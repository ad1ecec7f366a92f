package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/wire"
)

// Plan is what a job would do, determined before anything starts.
type Plan struct {
	Input  string `json:"input"`
	Output string `json:"output,omitempty"`
	// Files is the number of input files; 0 if a stream is among them.
	Files int `json:"files,omitempty"`
	// Format is what lines are: openai-batch; empty for any JSON.
	Format string `json:"format,omitempty"`
	Kernel string `json:"kernel"`
	// Info is how the kernel describes itself.
	Info KernelInfo `json:"info"`
	// Slots are the workers with their devices.
	Slots []Slot `json:"slots"`
	// Records is the number of records, -1 for a stream or for a file that is counted
	// while the job runs.
	Records int64 `json:"records"`
	// Chunks is the number of chunks and ChunkRecords the size of all but the last; 0
	// if not known in advance.
	Chunks       int64 `json:"chunks"`
	ChunkRecords int64 `json:"chunk_records"`
	BatchSize    int   `json:"batch_size"`
	// GroupBy is the member by whose size records are grouped into batches, empty for none.
	GroupBy string `json:"group_by,omitempty"`
	// Fetch are the files that workers fetch for records, FetchRoot the folder of those
	// that records name by path.
	Fetch     []FetchMember `json:"fetch,omitempty"`
	FetchRoot string        `json:"fetch_root,omitempty"`
	// Scaling is how many workers each device starts with and may get, if gpurun
	// chooses their number.
	Scaling []PlannedScaling `json:"scaling,omitempty"`
	// Resumed is how many records earlier runs have done.
	Resumed int64 `json:"resumed"`
	// Notes are lines for the user.
	Notes []string `json:"notes"`
}

// Slot is a place for one worker.
type Slot struct {
	Number int `json:"slot"`
	// Name is the label in bars and logs: "GPU 0", "GPU 0 #2".
	Name    string       `json:"name"`
	Devices []gpu.Device `json:"devices"`
	// Pin is added to the worker's environment.
	Pin []string `json:"pin"`
	// Threads is the slot's share of the CPU cores.
	Threads int `json:"threads"`

	rank  int  // among the slots of its device, from 0
	added bool // gpurun may remove it, because others on its device work
}

// DeviceOf returns the name of the first device of a slot with this name: "GPU 0" for
// "GPU 0+1 #2".
func DeviceOf(slotName string) string {
	name, _, _ := strings.Cut(slotName, " #")
	name, _, _ = strings.Cut(name, "+")
	return name
}

// key is the name of the device, the same for all slots on it.
func (s Slot) key() string { return s.Devices[0].String() }

// device describes the slot to a kernel.
func (s Slot) device() wire.Device {
	first := s.Devices[0]
	d := wire.Device{Name: s.Name, Index: first.Index, UUID: first.UUID, Memory: first.Memory, Threads: s.Threads}
	if first.Kind == gpu.GPU {
		d.GPU, d.Count = true, len(s.Devices)
	}
	return d
}

// MakePlan returns what Run would do with the same Config, using the same decisions. It
// starts the kernel once, without a device, to ask what it needs, asks Config.Devices.Claim for
// a preview, and leaves nothing behind.
func MakePlan(ctx context.Context, config Config) (Plan, error) {
	config, err := config.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	if err := checkOutputFolders(config); err != nil {
		return Plan{}, err
	}
	if err := checkOutputs(config); err != nil {
		return Plan{}, err
	}
	p, err := prepare(ctx, config, nil, true, func(string) {})
	if err != nil {
		return Plan{}, err
	}
	defer p.close()
	return p.plan, nil
}

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
	runDir    string // short-lived files with short names: sockets
	// figures is what the kernels count; nil if they compute batches.
	figures     *figures.File
	figuresPath string
	spentBefore map[string]int64 // in earlier runs
	// print is the fingerprint and cut is how the input was cut; set only for a file.
	print   fingerprint
	cut     input.Cut
	created time.Time // when the job was created; zero for a stream
	files   []string  // the kernel's
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
	p.plan = Plan{Files: config.fileCount(), Input: config.Input.Path, Output: config.Output.Path, Format: config.Format, Kernel: config.Kernel.Name, Records: -1, Notes: append(streamNote(config), leftNote(config.leftOut)...)}
	p.plan.Notes = append(p.plan.Notes, p.streamedIDs()...)
	p.plan.Fetch, p.plan.FetchRoot = config.Fetch.Members, config.Fetch.Root
	var short string
	if p.runDir, short, err = makeRunDir(note); err != nil {
		return nil, fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	if short != "" {
		p.plan.Notes = append(p.plan.Notes, short)
	}
	p.setLayout()
	asked := false
	if err := p.selectDevices(ctx); err != nil {
		if asked = p.needsNoDevice(ctx, err); !asked {
			return nil, err
		}
		p.useNoDevice()
	}
	// Ask the kernel and count the input concurrently: the count depends on the kernel
	// only if the kernel asks for another batch size.
	group, groupCtx := errgroup.WithContext(ctx)
	if !asked {
		group.Go(func() error { return p.askKernel(groupCtx) })
	}
	group.Go(func() error { return p.openInput(groupCtx, config.Batching.Size) })
	group.Go(func() error { return p.checkCustomIDs(groupCtx) })
	var notes []string
	if !preview {
		group.Go(func() error { notes = killAbandoned(); return nil })
	}
	err = group.Wait()
	p.plan.Notes = append(p.plan.Notes, notes...)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fault.New(fault.Canceled, "stopped before anything was started")
		}
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
	p.reserveSlots()
	p.keepClaimed()
	if err := checkOpenFiles(len(p.plan.Slots)); err != nil {
		return nil, err
	}
	return p, nil
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
	modules := currentModules(p.earlier.manifest.Fingerprint.Kernel.Modules)
	p.print.Kernel.Modules = modules
	now, touched := p.print, false
	if now.Input, touched, err = p.print.Input.asBefore(p.earlier); err != nil {
		return err
	}
	if touched {
		p.earlier.notes = append(p.earlier.notes, touchedNote)
	}
	if p.earlier.computedAny() { // otherwise nothing depends on it
		err = checkChanges(now.changes(p.earlier.manifest.Fingerprint), p.config.Resume.AcceptChanges)
	}
	p.print.Kernel.Modules = present(modules)
	return err
}

func (p *prepared) selectDevices(ctx context.Context) (err error) {
	if p.selection, err = gpu.ParseSelection(p.config.Devices.GPUs); err != nil {
		return p.gpusError(err)
	}
	options := p.config.devices
	options.Slow = p.notice
	options.PinUUID = p.config.Devices.PinUUID
	inventory, err := gpu.Select(ctx, p.selection, options)
	if err != nil {
		return p.gpusError(err)
	}
	if inventory.Note != "" {
		p.deviceNote = inventory.Note
		p.plan.Notes = append(p.plan.Notes, inventory.Note)
	}
	return p.useDevices(inventory.Devices)
}

// needsNoDevice reports whether the kernel can do without the device that was not found.
func (p *prepared) needsNoDevice(ctx context.Context, err error) bool {
	return fault.KindOf(err) == fault.NoDevice && p.askKernel(ctx) == nil && p.plan.Info.NoDevice
}

// useNoDevice gives the job one worker, for a kernel that uses no device.
func (p *prepared) useNoDevice() {
	p.config.Devices.GPUs, p.config.Devices.GPUsPerWorker, p.config.Devices.WorkersPerGPU = "cpu:1", 1, 1
	p.selection, _ = gpu.ParseSelection(p.config.Devices.GPUs) // it is valid
	p.idle = nil
	p.plan.Slots = makeSlots([][]gpu.Device{{{Kind: gpu.CPU, Name: "CPU"}}}, 1, p.config.cores(), true)
	p.plan.Notes = slices.DeleteFunc(p.plan.Notes, func(note string) bool { return note == p.deviceNote })
}

// gpusError adds the setting's name to a usage error; other errors concern the machine.
func (p *prepared) gpusError(err error) error {
	if fault.KindOf(err) != fault.Usage {
		return err
	}
	return fault.New(fault.Usage, "devices %s: %w", p.config.Devices.GPUs, err).Set("gpus")
}

// makeSlots returns slots for so many workers on each group of devices. If gpurun chooses
// how many there are, the first is named like its device.
func makeSlots(groups [][]gpu.Device, workers, cores int, auto bool) []Slot {
	var slots []Slot
	threads := max(1, cores/(len(groups)*workers))
	for round := range workers {
		for _, group := range groups {
			name := group[0].String()
			for _, more := range group[1:] {
				name += "+" + strings.TrimPrefix(more.String(), "GPU ")
			}
			if workers > 1 && (round > 0 || !auto) {
				name = fmt.Sprintf("%s #%d", name, round+1)
			}
			slots = append(slots, Slot{
				Number: len(slots), Name: name, Devices: group,
				Pin: gpu.PinEnv(group), Threads: threads, rank: round,
			})
		}
	}
	return slots
}

// openInput opens a plain file; batch is the batch size if already known. Anything else is
// opened only when the job starts: a stream can be read only once, and what is decoded goes
// to the job folder.
func (p *prepared) openInput(ctx context.Context, batch int) error {
	if p.config.inputs != nil {
		p.watch = &filesWatch{files: p.config.inputs.files, resumable: resumable(p.config)}
		return nil
	}
	var err error
	if p.input, err = watchInput(p.config); err != nil {
		return err
	}
	setDefault(&batch, DefaultBatchSize)
	chunks, _ := p.chunks()
	options := input.CutOptions{
		Limits: p.limits(), Chunks: chunks, BatchSize: batch, Split: p.config.Input.Split, Window: p.config.Input.Place,
	}
	if p.earlier != nil {
		return p.reopenInput(ctx, options)
	}
	source, err := input.Open(ctx, p.config.Input.Path, options)
	if err != nil {
		return err
	}
	p.source = source
	if planner, ok := source.(input.Planner); ok {
		p.cut = planner.Cut()
		p.input.sums, p.input.whole = planner.Sums, p.cut.Sums != nil
	}
	return nil
}

// reopenInput cuts the input as before and skips what is done. The input is compared
// with its earlier state later.
func (p *prepared) reopenInput(ctx context.Context, options input.CutOptions) error {
	p.cut = p.earlier.manifest.Cut
	p.cut.Chunks = slices.Clone(p.cut.Chunks)
	for i := range p.cut.Chunks { // the earlier run may have been started in another folder
		p.cut.Chunks[i].File = p.config.Input.Path
	}
	source := input.FromCut(p.cut)
	if sums := p.cut.Sums; sums != nil {
		p.input.sums, p.input.whole = func() input.Sums { return *sums }, true
	}
	if p.cut.Bytes > 0 {
		options.Bytes = p.cut.Bytes
		var err error
		if source, err = input.Open(ctx, p.config.Input.Path, options); err != nil {
			return err
		}
		if planner, ok := source.(input.Planner); ok {
			p.input.sums = planner.Sums
		}
	}
	p.source = commit.Remaining(source, p.earlier.state)
	return nil
}

func (p *prepared) limits() input.Limits {
	return input.Limits{Offset: p.config.Input.Offset, Limit: p.config.Input.Limit}
}

func (p *prepared) askKernel(ctx context.Context) error {
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
	p.plan.Info, p.files, p.interpreter = KernelInfo(ready.Info), ready.Files, ready.Interpreter
	return unusable(err)
}

func (p *prepared) describeChunks() {
	if p.source == nil {
		return
	}
	total, known := p.source.Total()
	if !known {
		return
	}
	p.plan.Records = total
	if p.earlier != nil {
		p.plan.Resumed = p.earlier.state.Done()
		return
	}
	chunks, unit := p.chunks()
	p.plan.ChunkRecords = chunk.Size(total, chunks, unit)
	if p.plan.ChunkRecords > 0 {
		p.plan.Chunks = (total + p.plan.ChunkRecords - 1) / p.plan.ChunkRecords
	}
}

// usefulSlots returns how many workers have something to do: with more workers than
// chunks, kernels would be opened for nothing.
func (p *prepared) usefulSlots() int {
	useful := int64(len(p.plan.Slots))
	switch {
	case p.source == nil || p.plan.Records < 0: // not known yet
	case p.earlier == nil:
		useful = min(useful, p.plan.Chunks)
	default: // how much must be computed again is determined later
		batch := int64(p.plan.BatchSize)
		useful = min(useful, (p.plan.Records+batch-1)/batch)
	}
	return int(useful)
}

// makeRunDir creates a folder whose path leaves room for a unix socket's name. short is
// a line for the user if the folder is not under $TMPDIR.
func makeRunDir(note func(string)) (path, short string, err error) {
	parent := os.TempDir()
	if len(parent) > maxTempPath {
		short = fmt.Sprintf("TMPDIR %s is too long for socket paths (%d characters, at most %d): creating sockets in %s",
			parent, len(parent), maxTempPath, shortTemp)
		parent = shortTemp
	}
	removeOldRunDirs(parent)
	path = filepath.Join(parent, runDirPrefix+randomName()[:10])
	note(path)
	switch err = os.Mkdir(path, 0o700); {
	case err != nil && short != "":
		err = fmt.Errorf("%w (%s); set TMPDIR to a folder with a shorter path", err, short)
	case err != nil:
		err = fmt.Errorf("%w; set TMPDIR to a writable folder", err)
	}
	return path, short, err
}

const (
	runDirPrefix = "gpurun-"
	shortTemp    = "/tmp"
	// maxTempPath is what remains of the system's 107 bytes for a socket path after
	// /gpurun-0123456789/plan-again/plugin-dir4294967295/plugin4294967295.
	maxTempPath = 40
)
