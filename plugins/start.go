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

// Command says which kernel process to start and with what around it.
type Command struct {
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is the working folder: the user's, so that relative paths in a
	// kernel's configuration mean what the user meant.
	Dir string
	// Log takes what the kernel prints; nil discards it.
	Log io.Writer
	// SocketDir is where the private socket is made; it must be short (a unix
	// address has 108 bytes). Empty means the system's temporary folder.
	SocketDir string
	// StartTimeout is how long the process may take to its handshake, model
	// loading not included; 0 means a minute.
	StartTimeout time.Duration
	// Inline lets records and results travel in the messages, not in shared memory.
	Inline bool
	// CloseTimeout is how long the kernel may take to close before it is killed;
	// 0 means 10 seconds.
	CloseTimeout time.Duration
}

const (
	defaultStartTimeout = time.Minute
	// deathWait is how long a broken connection waits for the process's exit
	// status, so that the error tells the cause and not the symptom.
	deathWait           = 3 * time.Second
	defaultCloseTimeout = 10 * time.Second
)

// Process is a running kernel: a Kernel that must be closed or killed.
type Process struct {
	*client
	plugin  *goplugin.Client
	runner  *processRunner
	expired atomic.Bool // StartTimeout has passed

	deathWait time.Duration

	closeOnce sync.Once
	closeErr  error
}

// Start starts a kernel process and connects to it. A program that is no kernel,
// or one of another version, or one that ends or says nothing before its
// handshake, is a fault of kind Incompatible that says so; one that somebody killed
// meanwhile is one of kind Crash, and a kernel that does not answer after its
// handshake one of kind Timeout. The end of ctx kills the
// process and is returned as it is.
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
	// go-plugin's own calls know no context: its end kills the process, which
	// ends them.
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

// newArena makes the memory that the process will share, if it can be had: inline
// works everywhere.
func (c Command) newArena() (*arena, *os.File) {
	if c.Inline {
		return nil, nil
	}
	shared, file, err := newArena()
	if err != nil {
		fmt.Fprintf(c.Log, "records go through the socket, which is slower: %v\n", err)
		return nil, nil
	}
	return shared, file
}

// maxSocketDir is how long the folder of the socket may be: a unix address has
// 108 bytes with its final zero, and go-plugin adds a folder and a name.
const maxSocketDir = 107 - len("/plugin-dir4294967295/plugin4294967295")

func checkSocketDir(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	if len(dir) > maxSocketDir {
		return fault.New(fault.Incompatible, "the folder for the kernel's socket has %d bytes, and %d are the most: set TMPDIR to a shorter one than %s",
			len(dir), maxSocketDir, dir)
	}
	return nil
}

func (p *Process) connect() error {
	if _, err := p.plugin.Start(); err != nil {
		return err
	}
	// Dialling has no limit of its own either: a kernel stopped right after its
	// handshake would hold it for ever.
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

// KillGroup sends SIGKILL to the process and its group, and does not wait. It may
// be called from any goroutine.
func (p *Process) KillGroup() { p.runner.killGroup() }

// whatKernels is what the author of a program that is none must know.
const whatKernels = "a kernel is a program whose main calls plugins.Serve"

// startError says why a program did not become a kernel.
func (p *Process) startError(ctx context.Context, err error) error {
	r := p.runner
	path := r.command.Path
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.process == nil: // it could not be executed
		return fault.New(fault.Incompatible, "start kernel %s: %w%s", path, err, executeHint(err))
	case strings.Contains(err.Error(), "API version"):
		return fault.New(fault.Incompatible, "kernel %s speaks another version of the kernel protocol than this gpurun (%d): rebuild it with this version's package plugins (%s)",
			path, ProtocolVersion, firstLine(err.Error()))
	case r.flooded.Load():
		return fault.New(fault.Incompatible, "kernel %s printed over %d bytes on standard output and no handshake; %s; for any other program use -k 'exec:%s'",
			path, maxNoise, whatKernels, path).WithDetail(r.noise.String())
	}
	select { // a broken connection announces a death
	case <-r.process.Done():
	case <-time.After(drainTime):
	}
	heard := p.lastWords()
	if heard == "" {
		heard = r.noise.String()
	}
	shaken, timeout := r.shaken.Load(), r.command.StartTimeout
	var e *fault.Error
	switch ended := r.endedItself(); {
	case ended && r.process.Exit().Foreign():
		e = fault.New(fault.Crash, "kernel %s was ended while it started: %s%s", path, r.process.Exit(), hint(heard)).Signed(fault.Outside)
	case ended && shaken:
		e = fault.New(fault.Incompatible, "kernel %s ended right after its handshake: %s%s", path, r.process.Exit(), hint(heard))
	case ended:
		e = fault.New(fault.Incompatible, "kernel %s ended before its handshake: %s; %s%s", path, r.process.Exit(), whatKernels, hint(heard))
	case !shaken && strings.Contains(err.Error(), "timeout"):
		e = fault.New(fault.Incompatible, "kernel %s printed no handshake within %s; %s; for any other program use -k 'exec:%s'%s",
			path, timeout, whatKernels, path, hint(heard))
	case shaken && p.expired.Load():
		e = fault.New(fault.Timeout, "kernel %s did not answer within %s after its handshake%s", path, timeout, hint(heard))
	default:
		e = fault.New(fault.Incompatible, "connect to kernel %s: %s%s", path, firstLine(err.Error()), hint(heard))
	}
	return e.WithDetail(heard)
}

// executeHint says what the usual reasons are for a file that cannot be executed.
func executeHint(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return " (is it executable?)"
	case errors.Is(err, syscall.ENOEXEC):
		return " (it is no program of this machine; a script needs a first line like #!/usr/bin/env python3)"
	}
	return ""
}

// explain waits for the death that a broken connection announces.
func (p *Process) explain(err error) error {
	select {
	case <-p.runner.process.Done():
		return died("kernel process ended", p.runner.process.Exit(), p.lastWords())
	case <-time.After(p.deathWait):
		return fault.New(fault.Crash, "connection to the kernel broke: %s", firstLine(err.Error())).WithDetail(p.lastWords())
	}
}

// died is the failure of a process that ended in the middle of its work.
func died(what string, exit proc.Exit, words string) error {
	e := fault.New(fault.Crash, "%s: %s", what, exit).WithDetail(words)
	if exit.Foreign() {
		return e.Signed(fault.Outside)
	}
	if _, sign := Diagnose(words); sign == fault.HostMemory {
		e.Kind, e.Sign = fault.OOM, sign
	}
	return e
}

// lastWords is the end of what the process wrote to standard error. When it is
// gone, some of that may still be on its way here.
func (p *Process) lastWords() string {
	select {
	case <-p.runner.process.Done():
		p.runner.drain()
	default:
	}
	return p.runner.tail.String()
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.runner.process.Done() }

// Pid is the kernel's process id.
func (p *Process) Pid() int { return p.runner.process.Pid() }

// Kill ends the process and its group at once; it works on a stopped one too.
func (p *Process) Kill() {
	p.KillGroup()
	p.free()
}

// free ends go-plugin's part: it asks the process to end, kills it after 2 s if
// it does not, and returns once it is gone.
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

// Close lets the kernel close, asks the process to end, and kills what is left.
// A second call does nothing and returns what the first did.
func (p *Process) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.close() })
	return p.closeErr
}

func (p *Process) close() error {
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
		return fault.New(fault.Timeout, "kernel did not close within %s and was killed", timeout).WithDetail(p.lastWords())
	case err != nil:
		return fmt.Errorf("close kernel: %w", err)
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// hint is the line that tells most of what a process wrote last, for a one-line
// message: the last, unless Go says before it what the trace is for.
func hint(words string) string {
	if words == "" {
		return ""
	}
	lines := strings.Split(words, "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return ". It said: " + line
		}
	}
	return ". Its last line: " + lines[len(lines)-1]
}
