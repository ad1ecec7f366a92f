// Package process is a kernel as its worker sees it: a process that is started, called and declared
// dead, or a kernel within the worker's own process. Package plugins has the other end.
package process

import (
	"cmp"
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
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
	"github.com/gpurun/gpurun/plugins/symptom"
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
	// MPS: a fault of another process on the device ends this one, too.
	MPS bool
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
	life
	closeOnce func() error
}

func newProcess(c *client, l life) *Process {
	return &Process{c, l, sync.OnceValue(func() error { return l.end(c) })}
}

// life is where a kernel runs.
type life interface {
	// KillGroup ends the kernel, and the group of its process, without waiting. It is safe for
	// concurrent use.
	KillGroup()
	// Kill ends it, even if the process is stopped, and waits for that.
	Kill()
	// Done returns a channel that is closed when it has ended.
	Done() <-chan struct{}
	// Pid returns the ID of its process.
	Pid() int
	// end closes the kernel and then ends it.
	end(*client) error
}

// Close closes the kernel, asks the process to exit, and kills it if it does not exit in
// time. A second call does nothing and returns the same error.
func (p *Process) Close() error { return p.closeOnce() }

// child is a kernel in a process of its own.
type child struct {
	client  *client // nil until it is dialed
	plugin  *goplugin.Client
	runner  *processRunner
	expired atomic.Bool // StartTimeout has passed

	deathWait time.Duration
}

// Start starts a kernel process and connects to it. The error is a fault of kind
// Incompatible if the program is not a kernel, uses another protocol version, or exits or
// stays silent before its handshake; of kind Crash if another process killed it; and of
// kind Timeout if it does not answer after its handshake. When ctx is done, Start kills
// the process and returns the context's error unwrapped.
func Start(ctx context.Context, command Command) (*Process, error) {
	command.StartTimeout = cmp.Or(command.StartTimeout, defaultStartTimeout)
	command.CloseTimeout = cmp.Or(command.CloseTimeout, defaultCloseTimeout)
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
	r := &processRunner{arena: file, command: command, log: log, tail: new(proc.Tail), drained: make(chan struct{})}
	c := &child{runner: r, deathWait: deathWait, plugin: goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  protocol.Handshake,
		Plugins:          goplugin.PluginSet{protocol.PluginName: dialed{}},
		RunnerFunc:       r.runnerFunc,
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     command.StartTimeout,
		SyncStdout:       log,
		SyncStderr:       io.MultiWriter(r.tail, log),
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: command.SocketDir},
		GRPCDialOptions:  protocol.DialOptions(),
	})}
	// go-plugin's calls take no context: when it is done, killing the process ends them.
	stop := context.AfterFunc(ctx, c.KillGroup)
	defer stop()
	if err := c.connect(); err != nil {
		err = c.startError(ctx, err)
		c.Kill()
		shared.Close()
		return nil, err
	}
	c.client.explain, c.client.arena, c.client.mps = c.explain, shared, command.MPS
	return newProcess(c.client, c), nil
}

// dialed connects the worker's end of the protocol to go-plugin.
type dialed struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (dialed) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return errors.ErrUnsupported }

func (dialed) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return newClient(kernelpb.NewKernelClient(conn)), nil
}

// newArena creates the memory to share with the process. If that fails, records are sent
// inline, which works everywhere.
func (c Command) newArena() (*protocol.Arena, *os.File) {
	if c.Inline {
		return nil, nil
	}
	shared, file, err := protocol.NewArena()
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
		return fault.SocketFolder.Of(fault.Incompatible, "the path of the folder for the kernel's socket has %d bytes; the limit is %d: set TMPDIR to a shorter path than %s",
			len(dir), maxSocketDir, dir)
	}
	return nil
}

func (c *child) connect() error {
	if _, err := c.plugin.Start(); err != nil {
		return err
	}
	// Dialing has no timeout either: a kernel stopped right after its handshake would
	// block it forever.
	timer := time.AfterFunc(c.runner.command.StartTimeout, func() {
		c.expired.Store(true)
		c.KillGroup()
	})
	defer timer.Stop()
	connection, err := c.plugin.Client()
	if err != nil {
		return err
	}
	kernel, err := connection.Dispense(protocol.PluginName)
	if err != nil {
		return err
	}
	c.client = kernel.(*client)
	return connection.Ping()
}

func (c *child) KillGroup() { c.runner.killGroup() }

// whatKernels explains to the author of another program what a kernel is.
const whatKernels = "a kernel is a program whose main calls plugins.Serve"

// startError explains why a program could not be started as a kernel.
func (c *child) startError(ctx context.Context, err error) error {
	r := c.runner
	path := r.command.Path
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.process == nil: // the program could not be executed
		return fault.KernelFile.New("start kernel %s: %w%s", path, err, executeHint(err))
	case strings.Contains(err.Error(), "API version"):
		return fault.KernelVersion.New("kernel %s uses another version of the kernel protocol than this gpurun (%d): rebuild it against this version of package plugins (%s)",
			path, protocol.Version, firstLine(err.Error()))
	case r.flooded.Load():
		return fault.NotAKernel.New("kernel %s printed over %d bytes on standard output but no handshake; %s",
			path, maxNoise, whatKernels).Set(path).WithDetail(r.noise.String())
	}
	select { // after a broken connection, the process is likely to exit
	case <-r.process.Done():
	case <-time.After(drainTime):
	}
	output := c.lastOutput()
	if output == "" {
		output = r.noise.String()
	}
	shaken, timeout := r.shaken.Load(), r.command.StartTimeout
	var e *fault.Error
	switch ended := r.endedItself(); {
	case ended && r.process.Exit().Foreign():
		e = fault.KernelKilled.Of(fault.Crash, "kernel %s was killed while starting: %s%s", path, r.process.Exit(), hint(output)).Signed(fault.Outside)
	case ended && shaken:
		e = fault.KernelNotStarted.New("kernel %s ended right after its handshake: %s%s", path, r.process.Exit(), hint(output))
	case ended:
		e = fault.KernelNotStarted.New("kernel %s ended before its handshake: %s; %s%s", path, r.process.Exit(), whatKernels, hint(output))
	case !shaken && strings.Contains(err.Error(), "timeout"):
		e = fault.NotAKernel.New("kernel %s printed no handshake within %s; %s%s",
			path, timeout, whatKernels, hint(output)).Set(path)
	case shaken && c.expired.Load():
		e = fault.KernelNotStarted.Of(fault.Timeout, "kernel %s did not answer within %s after its handshake%s", path, timeout, hint(output))
	default:
		e = fault.KernelNotStarted.New("connect to kernel %s: %s%s", path, firstLine(err.Error()), hint(output))
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
func (c *child) explain(err error) error {
	select {
	case <-c.runner.process.Done():
		exit := c.runner.process.Exit()
		return c.client.fromOutside(symptom.Died("kernel process ended: "+exit.String(), exit.Foreign(), c.lastOutput()))
	case <-time.After(c.deathWait):
		return fault.KernelCrashed.New("connection to the kernel broke: %s", firstLine(err.Error())).WithDetail(c.lastOutput())
	}
}

// lastOutput returns the end of the process's standard error. If the process has exited,
// it first waits until everything has been read.
func (c *child) lastOutput() string {
	if c.runner.process.Exited() {
		c.runner.drain()
	}
	return c.runner.tail.String()
}

func (c *child) Done() <-chan struct{} { return c.runner.process.Done() }

func (c *child) Pid() int { return c.runner.process.Pid() }

func (c *child) Kill() {
	c.KillGroup()
	c.free()
}

// free shuts down go-plugin's side: it asks the process to exit, kills it after 2 s if it
// does not, and returns once it has exited.
func (c *child) free() {
	c.plugin.Kill()
	if c.runner.process != nil {
		c.runner.drain()
	}
	if c.runner.socketDir != "" {
		_ = os.RemoveAll(c.runner.socketDir)
	}
	if c.client != nil {
		c.client.arena.Close()
	}
}

func (c *child) end(k *client) error {
	timeout := c.runner.command.CloseTimeout
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := k.close(ctx)
	if err != nil {
		c.KillGroup()
	}
	timer := time.AfterFunc(timeout, c.KillGroup)
	defer timer.Stop()
	c.free()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.KernelNotClosed.New("kernel did not close within %s and was killed", timeout).WithDetail(c.lastOutput())
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
