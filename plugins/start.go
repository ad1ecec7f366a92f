package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

// Command describes a kernel process to start.
type Command struct {
	Path string
	Args []string
	// Env is the complete environment.
	Env []string
	// Dir is the working folder. It should be the user's, so that relative paths in a
	// kernel's configuration mean what the user expects.
	Dir string
	// Log receives what the kernel prints; nil discards it.
	Log io.Writer
	// SocketDir is the folder for the private socket. Its path must be short: a unix
	// address has 108 bytes. Empty means the system's temporary folder.
	SocketDir string
	// StartTimeout is how long the process may take until its handshake, which comes
	// before model loading; 0 means one minute.
	StartTimeout time.Duration
	// Inline sends records and results in the messages instead of in shared memory.
	Inline bool
	// CloseTimeout is how long the kernel may take to close before it is killed;
	// 0 means 10 seconds.
	CloseTimeout time.Duration
}

const (
	defaultStartTimeout = time.Minute
	// deathWait is how long to wait for the process to exit after its connection breaks,
	// so that the error reports the cause and not the symptom.
	deathWait           = 3 * time.Second
	defaultCloseTimeout = 10 * time.Second
)

// Process is a running kernel process, or a kernel of this process (see [Within]). It is a
// Kernel; the caller must close or kill it.
type Process struct {
	*client
	inside  *within // a kernel of this process, nil otherwise
	plugin  *goplugin.Client
	runner  *processRunner
	expired atomic.Bool // StartTimeout has passed

	deathWait time.Duration

	closeOnce sync.Once
	closeErr  error
}

// Start starts a kernel process and connects to it. The error is a fault of kind
// Incompatible if the program is not a kernel, uses another protocol version, or exits or
// stays silent before its handshake; of kind Crash if another process killed it; and of
// kind Timeout if it does not answer after its handshake. When ctx is done, Start kills
// the process and returns the context's error unwrapped.
func Start(ctx context.Context, command Command) (*Process, error) {
	if command.StartTimeout <= 0 {
		command.StartTimeout = defaultStartTimeout
	}
	if command.CloseTimeout <= 0 {
		command.CloseTimeout = defaultCloseTimeout
	}
	if command.Log == nil {
		command.Log = io.Discard
	}
	if err := checkSocketDir(command.SocketDir); err != nil {
		return nil, err
	}
	log := &sharedWriter{w: command.Log}
	shared, file := command.newArena()
	if file != nil {
		defer file.Close()
	}
	r := &processRunner{arena: file, arenaSize: shared.size(), command: command, log: log, tail: new(proc.Tail), drained: make(chan struct{})}
	p := &Process{runner: r, deathWait: deathWait, plugin: goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          goplugin.PluginSet{pluginName: &grpcPlugin{}},
		RunnerFunc:       r.runnerFunc,
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     command.StartTimeout,
		SyncStdout:       log,
		SyncStderr:       io.MultiWriter(r.tail, log),
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: command.SocketDir},
		GRPCDialOptions:  dialOptions(),
	})}
	// go-plugin's calls take no context: when it is done, killing the process ends them.
	stop := context.AfterFunc(ctx, p.KillGroup)
	defer stop()
	if err := p.connect(); err != nil {
		err = p.startError(ctx, err)
		p.Kill()
		shared.close()
		return nil, err
	}
	p.client.explain, p.client.arena = p.explain, shared
	return p, nil
}

// newArena creates the memory to share with the process. If that fails, records are sent
// inline, which works everywhere.
func (c Command) newArena() (*arena, *os.File) {
	if c.Inline {
		return nil, nil
	}
	shared, file, err := newArena()
	if err != nil {
		fmt.Fprintf(c.Log, "sending records through the socket, which is slower: %v\n", err)
		return nil, nil
	}
	return shared, file
}

// maxSocketDir limits the path of the socket's folder: a unix address has 108 bytes with
// its final zero, and go-plugin adds a folder and a name.
const maxSocketDir = 107 - len("/plugin-dir4294967295/plugin4294967295")

func checkSocketDir(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	if len(dir) > maxSocketDir {
		return fault.New(fault.Incompatible, "the path of the folder for the kernel's socket has %d bytes; the limit is %d: set TMPDIR to a shorter path than %s",
			len(dir), maxSocketDir, dir)
	}
	return nil
}

func (p *Process) connect() error {
	if _, err := p.plugin.Start(); err != nil {
		return err
	}
	// Dialing has no timeout either: a kernel stopped right after its handshake would
	// block it forever.
	timer := time.AfterFunc(p.runner.command.StartTimeout, func() {
		p.expired.Store(true)
		p.KillGroup()
	})
	defer timer.Stop()
	connection, err := p.plugin.Client()
	if err != nil {
		return err
	}
	kernel, err := connection.Dispense(pluginName)
	if err != nil {
		return err
	}
	p.client = kernel.(*client)
	return connection.Ping()
}

// KillGroup sends SIGKILL to the process and its group without waiting. It is safe for
// concurrent use.
func (p *Process) KillGroup() {
	if p.inside != nil {
		p.inside.cancel()
		return
	}
	p.runner.killGroup()
}

// whatKernels explains to the author of another program what a kernel is.
const whatKernels = "a kernel is a program whose main calls plugins.Serve"

// startError explains why a program could not be started as a kernel.
func (p *Process) startError(ctx context.Context, err error) error {
	r := p.runner
	path := r.command.Path
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.process == nil: // the program could not be executed
		return fault.New(fault.Incompatible, "start kernel %s: %w%s", path, err, executeHint(err))
	case strings.Contains(err.Error(), "API version"):
		return fault.New(fault.Incompatible, "kernel %s uses another version of the kernel protocol than this gpurun (%d): rebuild it against this version of package plugins (%s)",
			path, ProtocolVersion, firstLine(err.Error()))
	case r.flooded.Load():
		return fault.New(fault.Incompatible, "kernel %s printed over %d bytes on standard output but no handshake; %s",
			path, maxNoise, whatKernels).WithCode(fault.NotAKernel, path).WithDetail(r.noise.String())
	}
	select { // after a broken connection, the process is likely to exit
	case <-r.process.Done():
	case <-time.After(drainTime):
	}
	output := p.lastOutput()
	if output == "" {
		output = r.noise.String()
	}
	shaken, timeout := r.shaken.Load(), r.command.StartTimeout
	var e *fault.Error
	switch ended := r.endedItself(); {
	case ended && r.process.Exit().Foreign():
		e = fault.New(fault.Crash, "kernel %s was killed while starting: %s%s", path, r.process.Exit(), hint(output)).Signed(fault.Outside)
	case ended && shaken:
		e = fault.New(fault.Incompatible, "kernel %s ended right after its handshake: %s%s", path, r.process.Exit(), hint(output))
	case ended:
		e = fault.New(fault.Incompatible, "kernel %s ended before its handshake: %s; %s%s", path, r.process.Exit(), whatKernels, hint(output))
	case !shaken && strings.Contains(err.Error(), "timeout"):
		e = fault.New(fault.Incompatible, "kernel %s printed no handshake within %s; %s%s",
			path, timeout, whatKernels, hint(output)).WithCode(fault.NotAKernel, path)
	case shaken && p.expired.Load():
		e = fault.New(fault.Timeout, "kernel %s did not answer within %s after its handshake%s", path, timeout, hint(output))
	default:
		e = fault.New(fault.Incompatible, "connect to kernel %s: %s%s", path, firstLine(err.Error()), hint(output))
	}
	return e.WithDetail(output)
}

// executeHint returns the likely reason why a file cannot be executed.
func executeHint(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return " (is it executable?)"
	case errors.Is(err, syscall.ENOEXEC):
		return " (it is not a program for this machine; a script needs a first line like #!/usr/bin/env python3)"
	}
	return ""
}

// explain waits for the process to exit after its connection breaks, and reports why it
// did.
func (p *Process) explain(err error) error {
	select {
	case <-p.runner.process.Done():
		return died("kernel process ended", p.runner.process.Exit(), p.lastOutput())
	case <-time.After(p.deathWait):
		return fault.New(fault.Crash, "connection to the kernel broke: %s", firstLine(err.Error())).WithDetail(p.lastOutput())
	}
}

// died returns the failure for a process that exited while it was working.
func died(what string, exit proc.Exit, output string) error {
	e := fault.New(fault.Crash, "%s: %s", what, exit).WithDetail(output)
	if exit.Foreign() {
		return e.Signed(fault.Outside)
	}
	if _, sign := Diagnose(output); sign == fault.HostMemory {
		e.Kind, e.Sign = fault.OOM, sign
	}
	return e
}

// lastOutput returns the end of the process's standard error. If the process has exited,
// it first waits until everything has been read.
func (p *Process) lastOutput() string {
	select {
	case <-p.runner.process.Done():
		p.runner.drain()
	default:
	}
	return p.runner.tail.String()
}

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} {
	if p.inside != nil {
		return p.inside.ctx.Done()
	}
	return p.runner.process.Done()
}

// Pid returns the kernel's process ID.
func (p *Process) Pid() int {
	if p.inside != nil {
		return os.Getpid()
	}
	return p.runner.process.Pid()
}

// Kill kills the process and its group immediately, even if the process is stopped.
func (p *Process) Kill() {
	if p.inside != nil {
		p.inside.kill()
		return
	}
	p.KillGroup()
	p.free()
}

// free shuts down go-plugin's side: it asks the process to exit, kills it after 2 s if it
// does not, and returns once it has exited.
func (p *Process) free() {
	p.plugin.Kill()
	if p.runner.process != nil {
		p.runner.drain()
	}
	if p.runner.socketDir != "" {
		_ = os.RemoveAll(p.runner.socketDir)
	}
	if p.client != nil {
		p.client.arena.close()
	}
}

// Close closes the kernel, asks the process to exit, and kills it if it does not exit in
// time. A second call does nothing and returns the same error.
func (p *Process) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.close() })
	return p.closeErr
}

func (p *Process) close() error {
	if p.inside != nil {
		defer p.Kill()
		return p.client.Close()
	}
	timeout := p.runner.command.CloseTimeout
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := p.client.close(ctx)
	if err != nil {
		p.KillGroup()
	}
	timer := time.AfterFunc(timeout, p.KillGroup)
	defer timer.Stop()
	p.free()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, "kernel did not close within %s and was killed", timeout).WithDetail(p.lastOutput())
	case err != nil:
		return fmt.Errorf("close kernel: %w", err)
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// hint returns the most informative line of a process's last output for a one-line
// message: the last one, unless a Go program has printed its panic before the trace.
func hint(output string) string {
	if output == "" {
		return ""
	}
	lines := strings.Split(output, "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "; it printed: " + line
		}
	}
	return "; its last line: " + lines[len(lines)-1]
}
