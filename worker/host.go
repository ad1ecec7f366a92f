package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// handshakeTimeout bounds the start of a kernel process, before its model.
const handshakeTimeout = time.Minute

// kernelHost keeps a kernel process running: it starts it, and starts it again
// after a death. It is used by one goroutine, end excepted.
type kernelHost struct {
	setup    wire.Setup
	builtins []string
	log      *slog.Logger

	named   plugins.Named
	process *plugins.Process // nil while there is none
	info    plugins.Info
	// warm is false until the first batch is done: that one may take as long as
	// opening, since frameworks compile and cache then.
	warm     bool
	computed bool // it has computed a batch, in any of its lives
	limits   limits
	sources  sources
	stuck    []proc.Stuck // what could not be killed, and may still hold the device

	mu    sync.Mutex // guards what end needs
	ended bool       // the worker ends: no further kernel
	now   *plugins.Process
}

func (h *kernelHost) resolver() plugins.Resolver {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return plugins.Resolver{
		Builtins: h.builtins, Self: self, SelfArgs: []string{wire.KernelArgument},
		SearchPath: cmp.Or(h.setup.PluginPath, os.Getenv("GPURUN_PLUGIN_PATH")), Dir: h.setup.Dir,
		Python: plugins.PythonOptions(h.setup.Python),
		Exec:   plugins.ExecOptions{Mode: h.setup.ExecMode, ID: h.setup.ExecID, MaxLine: h.setup.Records.MaxBytes},
	}
}

// interpreter is the absolute path of the Python that runs the kernel; empty if none
// does, or none was found: then the kernel says so.
func (h *kernelHost) interpreter() string {
	if !h.named.Python {
		return ""
	}
	path, err := plugins.PythonOptions(h.setup.Python).FindInterpreter()
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(h.setup.Dir, path)
	}
	return path
}

// describe starts the process and asks it what it is.
func (h *kernelHost) describe(ctx context.Context) (plugins.Info, error) {
	named, err := h.resolver().Resolve(h.setup.Kernel, h.setup.KernelConfig)
	if err != nil {
		return plugins.Info{}, err
	}
	h.named = named
	if err := h.start(ctx); err != nil {
		return plugins.Info{}, err
	}
	h.info, err = h.ask(ctx)
	return h.info, err
}

func (h *kernelHost) ask(ctx context.Context) (plugins.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, h.setup.OpenTimeout)
	defer cancel()
	info, err := h.process.Describe(ctx, h.named.Config)
	return info, h.timedOut(err, "describe itself")
}

// open readies the running process for the device.
func (h *kernelHost) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.setup.OpenTimeout)
	defer cancel()
	err := h.process.Open(ctx, plugins.Device(h.setup.Device), h.named.Config)
	h.warm = false
	return h.timedOut(err, "open")
}

func (h *kernelHost) start(ctx context.Context) error {
	command := plugins.Command{
		Path: h.named.Path, Args: h.named.Args, Env: os.Environ(), Dir: h.setup.Dir,
		Log: os.Stderr, SocketDir: h.setup.SocketDir,
		StartTimeout: min(handshakeTimeout, h.setup.OpenTimeout),
		Inline:       os.Getenv("GPURUN_INLINE") != "", // to compare, and for tests
	}
	if len(h.stuck) > 0 {
		return fault.New(fault.Device, "%s; it may still use the device", h.stuck[0])
	}
	h.mu.Lock()
	ended := h.ended
	h.mu.Unlock()
	if ended { // it died because the worker ends: another would be left behind
		return fault.New(fault.Canceled, "the worker ends")
	}
	h.sources.notePrograms(h.named.Code())
	process, err := plugins.Start(ctx, command)
	if err != nil {
		return err
	}
	h.own(process)
	return nil
}

func (h *kernelHost) own(process *plugins.Process) {
	h.process = process
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = process
	if h.ended && process != nil {
		process.KillGroup()
	}
}

// timedOut says in the user's words that a deadline has passed.
func (h *kernelHost) timedOut(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "kernel %s did not %s within %s (--open-timeout)", h.setup.Kernel, what, h.setup.OpenTimeout)
	}
	return err
}

// alive makes sure that an open kernel is there, and reports whether it had to
// start one.
func (h *kernelHost) alive(ctx context.Context) (restarted bool, err error) {
	if h.process != nil {
		return false, nil
	}
	for attempt := range outsideStarts {
		if err = h.restart(ctx); err == nil || fault.As(err) == nil || fault.As(err).Sign != fault.Outside {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond << attempt):
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
	return true, notAgain(err)
}

// outsideStarts is how often a kernel is started that somebody kills while it starts.
const outsideStarts = 4

// restart starts a process and opens its kernel.
func (h *kernelHost) restart(ctx context.Context) error {
	err := h.start(ctx)
	if err == nil {
		_, err = h.ask(ctx)
	}
	if err == nil {
		err = h.open(ctx)
	}
	if err != nil {
		h.kill() // nobody must take it for one that is open
	}
	return err
}

// notAgain makes of a kernel that was open once and cannot be started again the
// worker's failure: the records that it should have computed are not to blame,
// and it is not unusable either.
func notAgain(err error) error {
	e := fault.As(err)
	if e == nil {
		return err
	}
	switch e.Kind {
	case fault.Device: // no record's text is in it
		return e.Signed("")
	case fault.NoDevice, fault.Storage, fault.Canceled:
		return err
	}
	return fault.New(fault.Worker, "the kernel cannot be started again: %s", e.Message).WithDetail(e.Detail)
}

// good notes a batch that the kernel has computed.
func (h *kernelHost) good(took time.Duration, of load) {
	h.limits.good(took, of, !h.warm)
	h.warm, h.computed = true, true
}

// limit is how long a batch may take now.
func (h *kernelHost) limit(of load) time.Duration { return h.limits.batch(of, !h.warm) }

// tooLong is the failure of a batch that took longer. The message depends on the
// record alone, if it is one; the limit on what came before.
func (h *kernelHost) tooLong(limit time.Duration) error {
	h.kill()
	message := "the kernel did not answer in time; allow it more with --timeout"
	if h.limits.timeout > 0 {
		message = fmt.Sprintf("the kernel did not answer within %s; raise --timeout to allow it more", h.limits.timeout)
	}
	return fault.New(fault.Timeout, "%s", message).
		WithDetail(fmt.Sprintf("gpurun waited %s for this batch", limit))
}

// memory is what the kernel's framework holds of the device's, nil where that is not
// known. It may be called from any goroutine.
func (h *kernelHost) memory() *wire.FrameworkMemory {
	h.mu.Lock()
	process := h.now
	h.mu.Unlock()
	if process == nil {
		return nil
	}
	memory := wire.FrameworkMemory(process.Memory())
	if memory == (wire.FrameworkMemory{}) {
		return nil
	}
	return &memory
}

// alloc gives memory that the kernel process sees, if it has any. It may be called
// from any goroutine.
func (h *kernelHost) alloc(size int) chunk.Memory {
	h.mu.Lock()
	process := h.now
	h.mu.Unlock()
	if process == nil {
		return nil
	}
	if memory := process.Alloc(size); memory != nil {
		return memory
	}
	return nil
}

// kill ends the process, and what it has started and left.
func (h *kernelHost) kill() {
	if h.process == nil {
		return
	}
	h.noteLoaded()
	h.process.Kill()
	h.own(nil)
	h.stuck = proc.KillChildren()
}

// close ends the process in good order.
func (h *kernelHost) close() {
	if h.process == nil {
		return
	}
	if err := h.process.Close(); err != nil {
		h.log.Warn("close kernel", "error", err)
	}
	h.own(nil)
	h.stuck = proc.KillChildren()
}

// end kills the kernel from any goroutine, without waiting, and lets no other be
// started in its place.
func (h *kernelHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.now != nil {
		h.now.KillGroup()
	}
}
