package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// defaultIOWorkers is the default number of threads that run prepare. Processes are
	// as many as this worker's share of the cores.
	defaultIOWorkers = 4
	// maxIOWorkers keeps the batches in flight within the worker's limit.
	maxIOWorkers = 59
	// maxInputs is the most names that Info.Inputs can hold.
	maxInputs = 60
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

// NewInTerminal returns a kernel whose interpreter uses this process's standard input and
// output, so that a person can read what it prints and debug it. prepare runs in one
// thread or process.
func NewInTerminal() plugins.Kernel { return &kernel{terminal: true} }

type kernel struct {
	terminal  bool
	config    plugins.PythonConfig
	info      plugins.Info
	described bool // info is known
	// async: process is async.
	async bool
	// processes: the first step defines setup_prepare.
	processes bool
	python    *child // nil before the first Describe or Open, and after Close

	space   *space
	extract extractor
	pool    *pool         // nil unless processes run prepare
	pace    *pace         // of the threads that run prepare; nil if none do
	ended   chan struct{} // closed when Python sends nothing more
	// abandoned: the caller stopped waiting for the last response, so Python may be
	// stuck and never read another request.
	abandoned bool
	replies   chan response // to requests other than batches

	// finishing is held while batches are completed, so that they complete in order.
	finishing sync.Mutex

	mu      sync.Mutex
	batches []*inFlight // in order
	number  uint64
	names   []string // fields sent with every batch
	lines   bool     // whole records are sent too
	broken  error    // why no more batches can be computed
	asked   asked    // records of an async kernel
	sources []plugins.Source
	closing bool

	taken  atomic.Uint64                           // results consumed
	memory atomic.Pointer[plugins.FrameworkMemory] // as last reported
}

// inFlight is a batch that Python has.
type inFlight struct {
	number  uint64
	batch   plugins.Batch
	results *plugins.Results
	finish  func(error)

	request request
	failed  error    // set if the main process will not get it
	file    *os.File // with what prepare returned, if it is large
}

// Describe parses the kernel's source in the interpreter that will run it, without
// running it. The process is kept for Open, because an interpreter is slow to start.
func (k *kernel) Describe(ctx context.Context, config plugins.Config) (plugins.Info, error) {
	if k.described {
		return k.info, nil
	}
	if err := k.start(ctx, config); err != nil {
		return plugins.Info{}, err
	}
	info := plugins.Info{Name: "Python", Version: fmt.Sprintf("%s %s", k.python.version, k.python.interpreter), CanTrim: true, ReadsFetched: true}
	for i, step := range k.steps() {
		if err := k.describe(ctx, step, &info, i == 0); err != nil {
			return plugins.Info{}, err
		}
	}
	k.info, k.described = info, true
	return info, nil
}

// defaultConcurrency is how many records an async kernel gets at a time.
const defaultConcurrency = 64

// describe adds what one file declares to the info of the files before it.
func (k *kernel) describe(ctx context.Context, step plugins.PythonStep, info *plugins.Info, first bool) error {
	reply, err := k.ask(ctx, request{Type: "describe", File: step.File, Function: step.Function}, "described")
	if err != nil {
		return unusable(step.File, err)
	}
	if len(reply.Missing) > 0 {
		return k.missing(step.File, reply.Missing)
	}
	k.warnOfInstalled(reply.Installed)
	if reply.BatchSize > 0 && (info.BatchSize == 0 || reply.BatchSize < info.BatchSize) {
		info.BatchSize = reply.BatchSize
	}
	if reply.MaxWorkers > 0 && (info.MaxWorkers == 0 || reply.MaxWorkers < info.MaxWorkers) {
		info.MaxWorkers = reply.MaxWorkers
	}
	if reply.SetupPrepare && (!first || k.config.Later) {
		return fault.BadStep.Of(fault.Incompatible, "kernel %s: setup_prepare(ctx) works only in the first step of a chain, "+
			"because prepare cannot run ahead of an earlier step: rename it to setup, or make this the first step", filepath.Base(step.File)).InStep(step.Name)
	}
	if reply.Async && (!first || k.config.Later || len(k.config.Then) > 0) {
		return fault.BadStep.New("kernel %s: async def process(record) does not work as a step of a chain: "+
			"run it as a job of its own", filepath.Base(step.File)).InStep(step.Name)
	}
	info.NeedsGPU = info.NeedsGPU || reply.NeedsGPU
	info.MinMemory += reply.MinMemory << 20
	for _, framework := range frameworks(reply.Versions) {
		if !slices.Contains(info.Frameworks, framework) {
			info.Frameworks = append(info.Frameworks, framework)
		}
	}
	if first { // later steps see what it returns, not the input
		info.InFlight = 3
		if k.async = reply.Async; k.async {
			info.InFlight, info.Concurrency = 0, cmp.Or(reply.Concurrency, defaultConcurrency)
		}
		if k.processes = reply.SetupPrepare; reply.Prepare || k.processes {
			info.InFlight = 5 + k.ioWorkers(runtime.GOMAXPROCS(0)) // the worker sets it to its share
		}
		if k.processes {
			info.Ahead = aheadEach * k.ioWorkers(runtime.GOMAXPROCS(0))
			if info.MaxWorkers == 0 {
				info.MaxWorkers = 1 // its prepare processes may use all of the worker's cores
			}
		}
		info.Inputs = reply.Inputs[:min(len(reply.Inputs), maxInputs)]
		info.OnlyInputs = reply.OnlyInputs && len(reply.Inputs) <= maxInputs && len(k.config.Then) == 0 && !k.config.Later
		info.GroupBy = reply.GroupBy
		k.names = fieldNames(reply.Inputs)
	}
	return nil
}

// steps are the files, in order.
func (k *kernel) steps() []plugins.PythonStep {
	first := plugins.PythonStep{Name: k.config.Name, File: k.config.File, Function: k.config.Function, Config: k.config.Config}
	return append([]plugins.PythonStep{first}, k.config.Then...)
}

// ioWorkers is the most threads or processes that may run prepare. share is the number
// of cores that this worker may use: processes, unlike threads, use a core each.
func (k *kernel) ioWorkers(share int) int {
	wanted := k.config.IOWorkers
	switch {
	case k.terminal:
		return 1 // two debuggers cannot share a terminal
	case k.processes && wanted <= 0:
		wanted = share
	case k.processes:
		wanted = min(wanted, share)
	case wanted <= 0:
		wanted = defaultIOWorkers
	}
	return max(1, min(wanted, maxIOWorkers))
}

// missing is the error for requirements that are not installed, with the command
// that installs them.
func (k *kernel) missing(file string, names []string) error {
	return fault.NoPackage.New("kernel %s requires %s, which %s (Python %s) does not have; install it with: %s -m pip install %s",
		filepath.Base(file), strings.Join(names, ", "), k.python.interpreter, k.python.version,
		k.python.interpreter, strings.Join(quoted(names), " "))
}

// quoted quotes requirements for a shell: torch>=2 would redirect to a file.
func quoted(names []string) []string {
	list := slices.Clone(names)
	for i, name := range list {
		if strings.ContainsAny(name, "<>=!~;[ ") {
			list[i] = "'" + name + "'"
		}
	}
	return list
}

// frameworks lists the frameworks that the kernel imports, with their versions.
func frameworks(versions map[string]string) []string {
	var list []string
	for name, version := range versions {
		if version == "" {
			version = "(not installed)"
		}
		list = append(list, name+" "+version)
	}
	sort.Strings(list)
	return list
}

// fieldNames are the inputs that fit into one scan.
func fieldNames(inputs []string) []string { return inputs[:min(len(inputs), maxFields)] }

// start reads the configuration and starts the interpreter, once.
func (k *kernel) start(ctx context.Context, config plugins.Config) error {
	if k.python != nil {
		return nil
	}
	k.config = plugins.PythonConfig{}
	if err := config.Decode(&k.config); err != nil {
		return err
	}
	if k.config.File == "" {
		return fault.NoKernel.Of(fault.Incompatible, "the python kernel needs a kernel file").Set("kernel.py")
	}
	interpreter, err := k.config.FindInterpreter()
	if err != nil {
		return err
	}
	if k.python, err = startChild(ctx, interpreter, k.terminal); err != nil {
		return err
	}
	k.space = newSpace(len(k.python.memory.data)/2, k.python.memory.release)
	k.ended, k.replies = make(chan struct{}), make(chan response, 1)
	go k.listen(k.python)
	return nil
}

// Open imports the file and runs its setup, which loads the model. Meanwhile, the first
// prepare processes start.
func (k *kernel) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	if _, err := k.Describe(ctx, config); err != nil {
		return err
	}
	if err := k.start(ctx, config); err != nil { // it was closed since
		return err
	}
	k.python.printer.name(device.Name)
	workers := k.ioWorkers(device.Threads)
	req := request{
		Type: "open", Steps: k.steps(), Device: &device,
		IOWorkers: workers, Wanted: fewestAhead, NaN: k.config.NaN, Async: k.async,
	}
	ready := func(context.Context) error { return nil }
	if k.processes {
		if err := k.makePool(workers, device); err != nil {
			return err
		}
		req.PreparedMemory = k.pool.memory.path()
		ready = k.pool.openFirst()
	}
	reply, err := k.ask(ctx, req, "opened")
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		return unusable(k.fileOf(fault.As(err)), k.withInterpreter(err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if reply.Ahead {
		k.pace = newPace(workers, time.Now)
	}
	k.learn(reply.Inputs, false)
	return nil
}

func (k *kernel) makePool(workers int, device plugins.Device) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pool, err = newPool(k, workers, device)
	return err
}

// unusable adds the name of the file that cannot be used.
func unusable(file string, err error) error {
	e := fault.As(err)
	if e == nil {
		return err
	}
	return fault.KernelFile.Of(e.Kind, "kernel %s: %w", filepath.Base(file), err).WithDetail(e.Detail).InStep(e.Step).Signed(e.Sign)
}

// withInterpreter adds which Python lacks a module: users often have another one in
// mind.
func (k *kernel) withInterpreter(err error) error {
	e := fault.As(err)
	if e == nil || !strings.HasPrefix(e.Message, "ModuleNotFoundError: ") {
		return err
	}
	return fault.NoPackage.Of(e.Kind, "%w in %s (Python %s): install it there, activate the environment that has it, or name another interpreter",
		err, k.python.interpreter, k.python.version).Set("python").WithDetail(e.Detail).InStep(e.Step)
}

// fileOf returns the file of the step that failed.
func (k *kernel) fileOf(e *fault.Error) string {
	for _, step := range k.steps() {
		if e != nil && e.Step != "" && step.Name == e.Step {
			return step.File
		}
	}
	return k.config.File
}

// ask sends a request and waits for a response of type want.
func (k *kernel) ask(ctx context.Context, req request, want string) (response, error) {
	select {
	case <-k.replies: // discard the response to an abandoned request
	default:
	}
	if err := k.python.channel.Send(req); err != nil {
		<-k.ended
		return response{}, k.brokenBy()
	}
	select {
	case reply := <-k.replies:
		switch reply.Type {
		case want:
			return reply, nil
		case "failed":
			return reply, reply.err()
		}
		return reply, fault.PythonAnswer.New("Python sent %q instead of %q", reply.Type, want)
	case <-k.ended:
		return response{}, k.brokenBy()
	case <-ctx.Done():
		k.abandoned = true
		return response{}, ctx.Err()
	}
}

func (k *kernel) isClosing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closing
}

func (k *kernel) brokenBy() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// Trim releases device memory that the kernel and its frameworks hold but do not
// need.
func (k *kernel) Trim(ctx context.Context) error {
	if k.python == nil {
		return nil
	}
	reply, err := k.ask(ctx, request{Type: "trim"}, "trimmed")
	if reply.Memory != nil {
		k.memory.Store(reply.Memory)
	}
	return err
}

// Memory is what the kernel's framework holds, as last reported.
func (k *kernel) Memory() plugins.FrameworkMemory {
	if memory := k.memory.Load(); memory != nil {
		return *memory
	}
	return plugins.FrameworkMemory{}
}

// noteSources records files that Python has loaded.
func (k *kernel) noteSources(list [][2]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range list {
		source := plugins.Source{Path: one[0], Sum: one[1]}
		if !slices.Contains(k.sources, source) { // every process loads them
			k.sources = append(k.sources, source)
		}
	}
}

// Sources are the kernel's files and the user's modules that they imported.
func (k *kernel) Sources() []plugins.Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clip(k.sources)
}

// closeGrace is how long the kernel's close function may take; the worker waits 10 s.
const closeGrace = 8 * time.Second

// Close runs the kernel's close function and ends the interpreter.
func (k *kernel) Close() error {
	if k.python == nil {
		return nil
	}
	k.mu.Lock()
	k.closing = true
	broken := k.broken != nil
	k.mu.Unlock()
	if k.pool != nil {
		k.pool.close()
	}
	var err error
	if !broken {
		err = k.finish()
	}
	k.python.process.KillGroup()
	<-k.ended
	k.python.free()
	k.python, k.pool = nil, nil
	return err
}

// finish asks Python to exit and waits for it.
func (k *kernel) finish() error {
	name := filepath.Base(k.config.File)
	if k.abandoned {
		return fault.KernelTimeout.New("kernel %s did not respond and was killed", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_, err := k.ask(ctx, request{Type: "close"}, "closed")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.KernelNotClosed.New("kernel %s did not close within %s and was killed", name, closeGrace)
	case err != nil:
		return err
	}
	if !k.python.process.End(exitGrace) {
		return fault.KernelNotClosed.New("kernel %s closed but did not exit within %s and was killed", name, exitGrace)
	}
	return nil
}
