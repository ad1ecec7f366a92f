package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// handshakeTimeout limits how long a kernel process may take to start, before it loads its
// model.
const handshakeTimeout = time.Minute

// trimTimeout limits how long a kernel may take to free memory.
const trimTimeout = 30 * time.Second

// kernelHost keeps a kernel process running: it starts the process and restarts it after a
// crash. Only one goroutine may use it, except for the methods that say otherwise.
type kernelHost struct {
	setup    wire.Setup
	builtins []string
	kernels  map[string]func() plugins.Kernel // that may run in this process
	log      *slog.Logger

	named   resolve.Named
	process *process.Process // nil while none is running
	info    plugins.Info
	// warm is false until the process has computed its first batch. That batch may take as
	// long as opening the kernel, because frameworks compile and cache during it.
	warm     bool
	computed bool // some process of this kernel has computed a batch
	start    start
	limits   limits
	alone    alone
	opened   time.Time // when the process was about to be opened
	sources  sources
	remains  remains

	mu    sync.Mutex       // guards ended and live
	ended bool             // the worker is exiting: start no more kernels
	live  *process.Process // process, for other goroutines
}

// resolverOf returns what finds the kernel of a worker.
func resolverOf(setup wire.Setup, builtins []string) resolve.Resolver {
	return resolve.Resolver{
		Builtins: builtins, Self: cmp.Or(wire.Self(), os.Args[0]), SelfArgs: []string{wire.KernelArgument},
		SearchPath: cmp.Or(setup.PluginPath, os.Getenv("GPURUN_PLUGIN_PATH")), Dir: setup.Dir,
		Python:      resolve.PythonOptions(setup.Python),
		Exec:        resolve.ExecOptions{Mode: setup.ExecMode, ID: setup.ExecID, MaxLine: setup.Records.MaxBytes},
		KnownServer: setup.Asked,
	}
}

// interpreterOf returns the absolute path of the Python that runs the kernel. It is empty if
// the kernel is not Python or no interpreter was found; in the second case the kernel
// itself reports the error.
func interpreterOf(setup wire.Setup, named resolve.Named) string {
	if !named.Python {
		return ""
	}
	path, err := resolve.PythonOptions(setup.Python).FindInterpreter()
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(setup.Dir, path)
	}
	return path
}

// describe starts the process and asks it to describe itself.
func (h *kernelHost) describe(ctx context.Context) (plugins.Info, error) {
	named, err := resolverOf(h.setup, h.builtins).Resolve(h.setup.Kernel, h.setup.KernelConfig)
	if err != nil {
		return plugins.Info{}, err
	}
	h.named = named
	h.info, err = h.bringUp(ctx)
	h.limits.describe(h.info)
	return h.info, err
}

// bringUp starts the process, which imports its code before it describes the kernel.
func (h *kernelHost) bringUp(ctx context.Context) (plugins.Info, error) {
	if h.kernels[h.named.Within] == nil {
		h.start.begin(h.named.Python)
	}
	if err := h.launch(ctx); err != nil {
		return plugins.Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.setup.OpenTimeout)
	defer cancel()
	info, err := h.process.Describe(ctx, h.named.Config)
	return info, timedOut(h.setup, err, "describe itself")
}

// open prepares the running process for the device.
func (h *kernelHost) open(ctx context.Context) error {
	h.opened = time.Now()
	ctx, cancel := context.WithTimeout(ctx, h.setup.OpenTimeout)
	defer cancel()
	h.start.imported()
	err := h.process.Open(ctx, h.setup.Device, h.named.Config)
	if h.warm = false; err == nil {
		h.start.opened(h.process.Report().Imports, h.info.Concurrency == 0)
	}
	return timedOut(h.setup, err, "open")
}

func (h *kernelHost) launch(ctx context.Context) error {
	command := process.Command{
		Path: h.named.Path, Args: h.named.Args, Env: h.remains.environment(h.setup), Dir: h.setup.Dir,
		Log: os.Stderr, SocketDir: h.setup.SocketDir,
		StartTimeout: min(handshakeTimeout, h.setup.OpenTimeout),
		MPS:          h.alone.path != "",
		Inline:       os.Getenv("GPURUN_INLINE") != "", // for comparison and for tests
	}
	if len(h.remains.stuck) > 0 {
		return fault.GPULost.New("%s; it may still use the device", h.remains.stuck[0])
	}
	h.mu.Lock()
	ended := h.ended
	h.mu.Unlock()
	if ended { // it died because the worker is exiting; another would be orphaned
		return fault.Interrupted.New("the worker is exiting")
	}
	if !h.setup.DescribeOnly { // the plan reads them itself
		h.sources.addPrograms(h.named.Code(), h.setup.Programs)
	}
	if newKernel := h.kernels[h.named.Within]; newKernel != nil {
		kernel, runsHere := newKernel().(plugins.Concurrent)
		if runsHere {
			debug.SetGCPercent(100) // its requests and answers, perhaps images, are in this heap
			h.setProcess(process.Within(kernel))
			return nil
		}
	}
	started, err := process.Start(ctx, command)
	if err != nil {
		return err
	}
	h.setProcess(started)
	return nil
}

// remains are what a kernel process may leave. An interpreter that a template forks is no
// descendant of this worker, and is found by its mark.
type remains struct {
	mark  string       // of the process and its descendants, in their environment
	stuck []proc.Stuck // processes that could not be killed and may still hold the device
}

// environment is what the next process gets.
func (r *remains) environment(setup wire.Setup) []string {
	if setup.DescribeOnly {
		return os.Environ()
	}
	if setup.Templates != "" {
		r.mark = template.NewMark()
	}
	return append(os.Environ(), template.Variable+"="+template.Offer{Mark: r.mark, Keep: setup.KeepWarm, Socket: setup.Templates}.String())
}

// kill kills what an ended process has left.
func (r *remains) kill() {
	r.stuck = proc.KillChildren()
	if r.mark != "" {
		_, stuck := proc.KillMarked(template.MarkVariable + "=" + r.mark)
		r.stuck = append(r.stuck, stuck...)
	}
}

func (h *kernelHost) setProcess(process *process.Process) {
	h.process = process
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = process
	if h.ended && process != nil {
		process.KillGroup()
	}
}

// timedOut turns an expired deadline into an error that names the kernel and the limit.
func timedOut(setup wire.Setup, err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.KernelTimeout.New("kernel %s did not %s within %s", setup.Kernel, what, setup.OpenTimeout).Set("open-timeout")
	}
	return err
}

// alive ensures that an open kernel is running, and reports whether it had to start one.
func (h *kernelHost) alive(ctx context.Context) (restarted bool, err error) {
	if h.process != nil {
		return false, nil
	}
	starts := outsideStarts
	if h.alone.path != "" {
		starts = faultedStarts
	}
	for attempt := range starts {
		if err = h.restart(ctx); err == nil || fault.As(err) == nil || fault.As(err).Sign != fault.Outside {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond << attempt):
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
	return true, restartFault(err)
}

// outsideStarts is how many times to start a kernel that is killed from outside while it
// starts.
const outsideStarts = 4

// faultedStarts is the same on a GPU with MPS, for 100 s: after a fault, MPS serves no new
// process before all others have noticed the fault and exited.
const faultedStarts = 10

// restart starts a process and opens its kernel.
func (h *kernelHost) restart(ctx context.Context) error {
	_, err := h.bringUp(ctx)
	if err == nil {
		err = h.open(ctx)
	}
	if err != nil {
		h.kill() // a process that is not open must not be used
	}
	return err
}

// restartFault turns the failure to restart a kernel that was open before into a failure of the
// worker: the records it should have computed are not to blame, and the kernel is not
// unusable either.
func restartFault(err error) error {
	e := fault.As(err)
	if e == nil {
		return err
	}
	switch e.Kind {
	case fault.Device: // its message does not quote a record
		return e.Signed("")
	case fault.NoDevice, fault.Storage, fault.Canceled:
		return err
	}
	return fault.KernelCrashed.Of(fault.Worker, "cannot restart the kernel: %s", e.Message).WithDetail(e.Detail)
}

// good records a batch that the kernel has computed.
func (h *kernelHost) good(took time.Duration, of load) {
	h.limits.good(took, of, !h.warm)
	h.computed = true
	h.warmUp(took)
}

// warmUp records that the process has computed a batch, which took some time.
func (h *kernelHost) warmUp(took time.Duration) {
	if !h.warm {
		h.warm = true
		h.start.computed(took)
	}
}

// limit returns how long a batch may take now.
func (h *kernelHost) limit(of load) time.Duration { return h.limits.batch(of, !h.warm) }

// longestIsolation bounds how long a kernel isolates bad records: meanwhile it does not see
// that the job is stopping.
const longestIsolation = 10 * time.Second

// isolation returns how long the kernel may take for a batch if it isolates bad records
// itself: so much less than its limit that it is not taken for hung. A kernel that has not
// computed anything must fail the batch, because it may fail on every record (sample.go).
func (h *kernelHost) isolation(of load) time.Duration {
	if !h.computed || of.records == 1 {
		return 0
	}
	return min(longestIsolation, h.limit(of)/4)
}

// tooLong kills the kernel and returns the failure of a batch that exceeded its limit.
func (h *kernelHost) tooLong(limit time.Duration) error {
	h.kill()
	return h.limits.expired("respond", "batch", limit)
}

// dead reports whether the process has exited, or can compute nothing more.
func (h *kernelHost) dead() bool {
	return h.process != nil && (closed(h.process.Done()) || h.process.Broken())
}

// running returns the process, nil if there is none. It is safe for concurrent use.
func (h *kernelHost) running() *process.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// memory returns how much device memory the kernel's framework holds, or nil if that is
// unknown. It is safe for concurrent use.
func (h *kernelHost) memory() *wire.FrameworkMemory {
	process := h.running()
	if process == nil {
		return nil
	}
	memory := wire.FrameworkMemory(process.Report().Memory)
	if memory == (wire.FrameworkMemory{}) {
		return nil
	}
	return &memory
}

// alloc returns memory shared with the kernel process, or nil if there is none. It is safe
// for concurrent use.
func (h *kernelHost) alloc(size int) input.Memory {
	if process := h.running(); process != nil {
		if memory := process.Alloc(size); memory != nil {
			return memory
		}
	}
	return nil
}

// kill kills the process and everything it started.
func (h *kernelHost) kill() {
	if h.process == nil {
		return
	}
	h.addLoaded()
	h.process.Kill()
	h.setProcess(nil)
	h.remains.kill()
}

// close shuts the process down cleanly.
func (h *kernelHost) close() error {
	if h.process == nil {
		return nil
	}
	err := h.process.Close()
	if err != nil {
		h.log.Warn("close kernel", "error", err)
	}
	h.setProcess(nil)
	h.remains.kill()
	return err
}

// end kills the kernel without waiting and prevents another start. It is safe for
// concurrent use.
func (h *kernelHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.live != nil {
		h.live.KillGroup()
	}
}

// trim makes the kernel free cached memory.
func (h *kernelHost) trim(ctx context.Context) error {
	if h.process == nil || !h.info.CanTrim {
		return fault.KernelContract.Of(fault.Incompatible, "kernel %s cannot free cached memory", h.setup.Kernel)
	}
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	before, after, err := h.process.Trim(ctx)
	h.log.Info("kernel trimmed", "before", before.Cached, "after", after.Cached, "error", err)
	return err
}
