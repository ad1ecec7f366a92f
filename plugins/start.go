package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

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
}

const (
	defaultStartTimeout = time.Minute
	// deathWait is how long a broken connection waits for the process's exit
	// status, so that the error tells the cause and not the symptom.
	deathWait = 3 * time.Second
	// closeGrace is how long a kernel may take to close.
	closeGrace = 10 * time.Second
)

// Process is a running kernel: a Kernel that must be closed or killed.
type Process struct {
	*client
	plugin *goplugin.Client
	runner *processRunner
}

// Start starts a kernel process and connects to it. A program that is no kernel,
// or one of another version, is a fault of kind Incompatible that says so; a
// process that died or did not answer in time is one of kind Crash or Timeout.
func Start(ctx context.Context, command Command) (*Process, error) {
	if command.StartTimeout <= 0 {
		command.StartTimeout = defaultStartTimeout
	}
	if command.Log == nil {
		command.Log = io.Discard
	}
	r := &processRunner{command: command, log: command.Log, tail: new(proc.Tail)}
	p := &Process{runner: r, plugin: goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          goplugin.PluginSet{pluginName: &grpcPlugin{}},
		RunnerFunc:       func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) { return r.runnerFunc(cmd) },
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     command.StartTimeout,
		SyncStdout:       command.Log,
		SyncStderr:       io.MultiWriter(r.tail, command.Log),
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: command.SocketDir},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
			grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		},
	})}
	// go-plugin's own calls know no context: its end kills the process, which
	// ends them.
	stop := context.AfterFunc(ctx, p.KillGroup)
	defer stop()
	if err := p.connect(); err != nil {
		err = p.startError(ctx, err)
		p.Kill()
		return nil, err
	}
	p.client.explain = p.explain
	return p, nil
}

func (p *Process) connect() error {
	if _, err := p.plugin.Start(); err != nil {
		return err
	}
	// Dialling has no limit of its own either: a kernel stopped right after its
	// handshake would hold it for ever.
	timer := time.AfterFunc(p.runner.command.StartTimeout, p.KillGroup)
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
func (p *Process) KillGroup() {
	if p.runner.process != nil {
		p.runner.process.KillGroup()
	}
}

// startError says why a program did not become a kernel.
func (p *Process) startError(ctx context.Context, err error) error {
	path := p.runner.command.Path
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.runner.process == nil: // it could not be executed
		if errors.Is(err, os.ErrPermission) {
			return fault.New(fault.Incompatible, "start kernel %s: %w (is it executable?)", path, err)
		}
		return fault.New(fault.Incompatible, "start kernel %s: %w", path, err)
	case strings.Contains(err.Error(), "API version"):
		return fault.New(fault.Incompatible, "kernel %s speaks another version of the kernel protocol than this gpurun (%d): rebuild it with this version's package plugins (%s)",
			path, ProtocolVersion, firstLine(err.Error()))
	}
	heard := p.lastWords()
	if noise := p.runner.noise.String(); noise != "" && heard == "" {
		heard = noise
	}
	select {
	case <-p.runner.process.Done():
		return fault.New(fault.Incompatible, "kernel %s ended before its handshake: %s; a kernel is a program whose main calls plugins.Serve%s",
			path, p.runner.process.Exit(), hint(heard)).WithDetail(heard)
	case <-time.After(drainTime):
	}
	if strings.Contains(err.Error(), "timeout") {
		return fault.New(fault.Incompatible, "kernel %s printed no handshake within %s; a kernel is a program whose main calls plugins.Serve; for any other program use -k 'exec:%s'%s",
			path, p.runner.command.StartTimeout, path, hint(heard)).WithDetail(heard)
	}
	return fault.New(fault.Incompatible, "connect to kernel %s: %s%s", path, firstLine(err.Error()), hint(heard)).WithDetail(heard)
}

// explain waits for the death that a broken connection announces.
func (p *Process) explain(err error) error {
	select {
	case <-p.runner.process.Done():
		words := p.lastWords()
		return fault.New(fault.Crash, "kernel process ended: %s", p.runner.process.Exit()).WithDetail(words)
	case <-time.After(deathWait):
		return fault.New(fault.Crash, "connection to the kernel broke: %s", firstLine(err.Error())).WithDetail(p.lastWords())
	}
}

func (p *Process) lastWords() string {
	// The process is gone; what it wrote last may still be on its way here.
	time.Sleep(10 * time.Millisecond)
	return p.runner.tail.String()
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.runner.process.Done() }

// Pid is the kernel's process id.
func (p *Process) Pid() int { return p.runner.process.Pid() }

// Kill ends the process and its group at once; it works on a stopped one too.
func (p *Process) Kill() {
	p.KillGroup()
	p.plugin.Kill() // returns once its connection breaks; frees the socket
}

// Close lets the kernel close, asks the process to end, and kills what is left.
func (p *Process) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := p.client.close(ctx)
	if err != nil {
		p.KillGroup()
	}
	timer := time.AfterFunc(closeGrace, p.KillGroup)
	defer timer.Stop()
	p.plugin.Kill()
	if err != nil {
		return fmt.Errorf("close kernel: %w", err)
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// hint is the last line that a process wrote, for a one-line message.
func hint(words string) string {
	if words == "" {
		return ""
	}
	lines := strings.Split(words, "\n")
	return ". Its last line: " + lines[len(lines)-1]
}
