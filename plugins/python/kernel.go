package python

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
	"github.com/gpurun/gpurun/plugins/resolve"
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
	config    resolve.PythonConfig
	info      plugins.Info
	described bool // info is known
	// async: process is async.
	async bool
	// processes: the first step defines setup_prepare.
	processes bool
	session   *session // nil before the first Describe or Open
}

// Describe parses the kernel's source in the interpreter that will run it. In the process of a
// worker, it also runs the module level. The process is kept for Open, because an interpreter is
// slow to start.
func (k *kernel) Describe(ctx context.Context, config plugins.Config) (plugins.Info, error) {
	if k.described {
		return k.info, nil
	}
	if err := k.start(ctx, config); err != nil {
		return plugins.Info{}, err
	}
	var info plugins.Info
	for i, step := range k.steps() {
		needs, err := k.describe(ctx, step, i == 0)
		switch {
		case err != nil:
			return plugins.Info{}, err
		case i == 0:
			info = needs
		default:
			info = info.Then(needs)
		}
	}
	k.info, k.described = info, true
	return info, k.load(ctx)
}

// load runs the module level of the files, if this process belongs to a worker, unless a template
// has done that. It separates the imports from loading the model.
func (k *kernel) load(ctx context.Context) error {
	if os.Getenv(template.Variable) == "" {
		return nil
	}
	reply, err := k.session.ask(ctx, request{Type: "load", Steps: k.steps()}, "loaded")
	if err != nil {
		return unusable(k.config.File, err)
	}
	k.session.python.noteImports(reply.Imports)
	return nil
}

// defaultConcurrency is how many records an async kernel gets at a time.
const defaultConcurrency = 64

// describe returns what one file declares.
func (k *kernel) describe(ctx context.Context, step resolve.PythonStep, first bool) (plugins.Info, error) {
	python := k.session.python
	reply, err := k.session.ask(ctx, request{Type: "describe", File: step.File, Function: step.Function}, "described")
	if err != nil {
		return plugins.Info{}, unusable(step.File, err)
	}
	if len(reply.Missing) > 0 {
		return plugins.Info{}, python.missing(step.File, reply.Missing)
	}
	k.session.asked.warn(installedWarning(reply.Installed))
	k.session.asked.warn(reply.Clash)
	if reply.SetupPrepare && (!first || k.config.Later) {
		return plugins.Info{}, fault.BadStep.Of(fault.Incompatible, "kernel %s: setup_prepare(ctx) works only in the first step of a chain, "+
			"because prepare cannot run ahead of an earlier step: rename it to setup, or make this the first step", filepath.Base(step.File)).InStep(step.Name)
	}
	if reply.Async && (!first || k.config.Later || len(k.config.Then) > 0) {
		return plugins.Info{}, fault.BadStep.New("kernel %s: async def process(record) does not work as a step of a chain: "+
			"run it as a job of its own", filepath.Base(step.File)).InStep(step.Name)
	}
	info := plugins.Info{
		Name: "Python", Version: python.version + " " + python.interpreter, CanTrim: true, ReadsFetched: true,
		BatchSize: reply.BatchSize, MaxWorkers: reply.MaxWorkers, NeedsGPU: reply.NeedsGPU, MinMemory: reply.MinMemory << 20,
		Frameworks: frameworks(reply.Versions), GroupBy: reply.GroupBy, Inputs: reply.Inputs[:min(len(reply.Inputs), maxInputs)], InFlight: 3,
		Fresh:      reply.Fork != nil && !*reply.Fork,
		OnlyInputs: reply.OnlyInputs && len(reply.Inputs) <= maxInputs && len(k.config.Then) == 0 && !k.config.Later,
	}
	if !first { // it sees what the first returns, not the input
		return info, nil
	}
	k.session.names = reply.Inputs[:min(len(reply.Inputs), fields.Most)]
	k.async, k.processes = reply.Async, reply.SetupPrepare
	workers := k.ioWorkers(runtime.GOMAXPROCS(0), k.processes) // the worker sets it to its share
	if k.async {
		info.InFlight, info.Concurrency = 0, cmp.Or(reply.Concurrency, defaultConcurrency)
	}
	if reply.Prepare || k.processes {
		info.InFlight = 5 + workers
	}
	if k.processes {
		info.Ahead = aheadEach * workers
		info.MaxWorkers = cmp.Or(info.MaxWorkers, 1) // its prepare processes may use all of the worker's cores
	}
	return info, nil
}

// steps are the files, in order.
func (k *kernel) steps() []resolve.PythonStep {
	first := resolve.PythonStep{Name: k.config.Name, File: k.config.File, Function: k.config.Function, Config: k.config.Config}
	return append([]resolve.PythonStep{first}, k.config.Then...)
}

// ioWorkers is the most threads or processes that may run prepare. share is the number
// of cores that this worker may use: processes, unlike threads, use a core each.
func (k *kernel) ioWorkers(share int, processes bool) int {
	wanted := max(0, k.config.IOWorkers)
	switch {
	case k.terminal:
		return 1 // two debuggers cannot share a terminal
	case processes:
		wanted = min(share, cmp.Or(wanted, share))
	default:
		wanted = cmp.Or(wanted, defaultIOWorkers)
	}
	return max(1, min(wanted, maxIOWorkers))
}

// frameworks lists the frameworks that the kernel imports, with their versions.
func frameworks(versions map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		list = append(list, name+" "+cmp.Or(versions[name], "(not installed)"))
	}
	return list
}

// start reads the configuration and starts the interpreter, once.
func (k *kernel) start(ctx context.Context, config plugins.Config) error {
	if k.session != nil && !k.session.closed {
		return nil
	}
	k.config = resolve.PythonConfig{}
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
	var files []string
	for _, step := range k.steps() {
		files = append(files, step.File)
	}
	k.beginPreparers(interpreter)
	python, err := startChild(ctx, interpreter, k.terminal, files)
	if err != nil {
		return err
	}
	k.session = newSession(python)
	return nil
}

// beginPreparers starts the template of prepare processes, if the file seems to need them, so that it
// imports while the main process does.
func (k *kernel) beginPreparers(interpreter string) {
	offer, ok := offered(k.terminal)
	source, err := os.ReadFile(k.config.File)
	if !ok || err != nil || !bytes.Contains(source, []byte("\ndef setup_prepare(")) {
		return
	}
	share := runtime.GOMAXPROCS(0)
	go preparing(interpreter, k.config.File, max(1, share/k.ioWorkers(share, true))).begin(offer)
}

// Open imports the file and runs its setup, which loads the model. Meanwhile, the first
// prepare processes start. If that cannot work in a forked interpreter, Open starts a fresh one.
func (k *kernel) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	err := k.open(ctx, device, config)
	if e := fault.As(err); e != nil && k.session != nil {
		if python := k.session.python; python.failsInFork(e.Message) {
			python.spoil("CUDA or a framework does not work in a forked process: " + e.Message)
		}
		if k.session.python.spoilt.Load() && ctx.Err() == nil {
			_ = k.Close()
			return k.open(ctx, device, config)
		}
	}
	return err
}

func (k *kernel) open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	if _, err := k.Describe(ctx, config); err != nil {
		return err
	}
	if err := k.start(ctx, config); err != nil { // it was closed since
		return err
	}
	s := k.session
	s.python.printer.name(device.Name)
	workers := k.ioWorkers(device.Threads, k.processes)
	req := request{
		Type: "open", Steps: k.steps(), Device: &device,
		IOWorkers: workers, Wanted: fewestAhead, NaN: k.config.NaN, Async: k.async,
	}
	ready := func(context.Context) error { return nil }
	if k.processes {
		pool, err := newPool(k.session, k.steps()[:1], workers, device)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.pool = pool
		s.mu.Unlock()
		req.PreparedMemory = pool.memory.path()
		ready = pool.openFirst()
	}
	s.stopWatch = s.python.watchHang()
	reply, err := s.ask(ctx, req, "opened")
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		return unusable(k.fileOf(fault.As(err)), s.python.withInterpreter(err))
	}
	s.python.noteImports(reply.Imports)
	s.mu.Lock()
	defer s.mu.Unlock()
	if reply.Ahead {
		s.pace = newPace(workers, time.Now)
	}
	s.learn(reply.Inputs, false)
	return nil
}

// unusable adds the name of the file that cannot be used.
func unusable(file string, err error) error {
	e := fault.As(err)
	if e == nil {
		return err
	}
	return fault.KernelFile.Of(e.Kind, "kernel %s: %w", filepath.Base(file), err).WithDetail(e.Detail).InStep(e.Step).Signed(e.Sign)
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

// Process sends a batch to Python.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.async {
		return plugins.ProcessEach(ctx, k, k.info.Concurrency, batch, results)
	}
	k.session.compute(batch, results)
	return nil
}

// Answer sends a record to Python and waits for its answer.
func (k *kernel) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	return k.session.asked.compute(ctx, record)
}

// Trim releases device memory that the kernel and its frameworks hold but do not
// need.
func (k *kernel) Trim(ctx context.Context) error {
	if k.session == nil {
		return nil
	}
	reply, err := k.session.ask(ctx, request{Type: "trim"}, "trimmed")
	if reply.Memory != nil {
		k.session.memory.Store(reply.Memory)
	}
	return err
}

// Report returns the kernel's files and the user's modules that they imported, the places where process
// blocks the event loop, and what is wrong with an installed package.
func (k *kernel) Report() (r plugins.Report) {
	s := k.session
	if s == nil {
		return r
	}
	if memory := s.memory.Load(); memory != nil {
		r.Memory = *memory
	}
	r.Imports, r.Warnings = s.python.imports, s.asked.allWarnings()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Sources = slices.Clip(s.sources)
	return r
}

// closeGrace is how long the kernel's close function may take; the worker waits 10 s.
const closeGrace = 8 * time.Second

// Close runs the kernel's close function and ends the interpreter.
func (k *kernel) Close() error {
	s := k.session
	if s == nil || s.closed {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	broken := s.broken != nil
	s.mu.Unlock()
	if s.pool != nil {
		s.pool.close()
	}
	var err error
	if !broken {
		err = s.finish(filepath.Base(k.config.File))
	}
	s.python.process.KillGroup()
	<-s.ended
	s.python.free()
	return err
}

// finish asks Python to exit and waits for it.
func (s *session) finish(name string) error {
	if s.abandoned {
		return fault.KernelTimeout.New("kernel %s did not respond and was killed", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_, err := s.ask(ctx, request{Type: "close"}, "closed")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.KernelNotClosed.New("kernel %s did not close within %s and was killed", name, closeGrace)
	case err != nil:
		return err
	}
	if !s.python.process.End(exitGrace) {
		return fault.KernelNotClosed.New("kernel %s closed but did not exit within %s and was killed", name, exitGrace)
	}
	return nil
}
