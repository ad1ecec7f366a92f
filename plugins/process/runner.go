package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// processRunner starts the kernel process for go-plugin. go-plugin's own runner forces the
// host's stdin and environment on the child, waits forever on a pipe that a grandchild
// holds open, and hangs on a long line of output.
type processRunner struct {
	command Command
	env     []string // set by go-plugin: cookie, versions, socket folder
	// arena is inherited by the process as descriptor 3; nil for none.
	arena *os.File
	log   io.Writer
	tail  *proc.Tail
	// socketDir is go-plugin's folder, which it does not remove if the process could not
	// be started.
	socketDir string

	handshake *io.PipeReader
	noise     proc.Tail // stdout before the handshake
	// shaken and flooded are the outcome of the search for the handshake.
	shaken, flooded atomic.Bool
	reading         sync.WaitGroup
	drained         chan struct{} // closed when all output has been read

	mu      sync.Mutex // for KillGroup, which any goroutine may call
	process *proc.Process
	killed  bool // by us, before it exited by itself
}

// maxNoise is how much a kernel may print before its handshake. Libraries print
// banners; a program that prints more is not a kernel.
const maxNoise = 1 << 20

// drainTime is how long to keep reading output after the process has exited: a
// grandchild outside its group may hold the pipe open forever.
const drainTime = 200 * time.Millisecond

// handshakeLine matches go-plugin's handshake: its version (always 1), ours, an address
// and a protocol. A banner without a newline may precede it.
var handshakeLine = regexp.MustCompile(`1\|\d+\|(unix|tcp)\|[^|]+\|.*\n$`)

var errStdoutFlood = errors.New("too much output before the handshake")

func (r *processRunner) Start(context.Context) error {
	stdout, stdoutChild, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdoutChild.Close()
	stderr, stderrChild, err := os.Pipe()
	if err != nil {
		stdout.Close()
		return err
	}
	defer stderrChild.Close()
	// A kernel started by another kernel must not take its parent's arena for its own.
	env := slices.DeleteFunc(slices.Clone(r.command.Env), func(entry string) bool { return strings.HasPrefix(entry, protocol.ArenaVariable+"=") })
	env = append(env, r.env...)
	var inherited []*os.File
	if r.arena != nil {
		inherited = append(inherited, r.arena)
		env = append(env, protocol.ArenaVariable+"=3")
	}
	process, err := proc.Start(proc.Command{
		Path: r.command.Path, Args: r.command.Args, Dir: r.command.Dir, Env: env,
		Stdout: stdoutChild, Stderr: stderrChild, ExtraFiles: inherited,
		DieWithParent: true,
	})
	if err != nil {
		stdout.Close()
		stderr.Close()
		return err
	}
	r.own(process)
	reader, writer := io.Pipe()
	r.handshake = reader
	r.reading.Go(func() { r.readStdout(stdout, writer) })
	r.reading.Go(func() { r.readStderr(stderr) })
	go func() {
		r.reading.Wait()
		close(r.drained)
	}()
	go func() {
		<-process.Done()
		deadline := time.Now().Add(drainTime)
		_ = stdout.SetReadDeadline(deadline)
		_ = stderr.SetReadDeadline(deadline)
	}()
	return nil
}

// own makes the process known to killGroup, which may have been called before.
func (r *processRunner) own(process *proc.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = process
	if r.killed {
		process.KillGroup()
	}
}

// killGroup sends SIGKILL to the process and its group without waiting.
func (r *processRunner) killGroup() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		r.killed = true
	} else if !r.process.Exited() {
		r.killed = true
		r.process.KillGroup()
	}
}

// endedItself reports whether the process has exited without being killed by us.
func (r *processRunner) endedItself() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process.Exited() && !r.killed
}

// drain waits until all output of an exited process has been read. That takes a moment, or
// drainTime if another process holds the pipe open.
func (r *processRunner) drain() {
	select {
	case <-r.drained:
	case <-time.After(2 * drainTime): // the log blocks
	}
}

// readStdout passes the handshake line to go-plugin and everything else to the log. It
// closes the handshake pipe only when the process has exited, because go-plugin takes the
// end of the pipe as the end of the process.
func (r *processRunner) readStdout(stdout *os.File, handshake *io.PipeWriter) {
	defer stdout.Close()
	in := bufio.NewReaderSize(stdout, 32<<10)
	err := r.findHandshake(in, handshake)
	if err == nil {
		_, _ = io.Copy(r.log, in)
	}
	if errors.Is(err, errStdoutFlood) {
		r.flooded.Store(true)
		handshake.CloseWithError(err)
		_, _ = io.Copy(io.Discard, in)
		return
	}
	<-r.process.Done()
	handshake.Close()
}

func (r *processRunner) findHandshake(in *bufio.Reader, handshake io.Writer) error {
	read := 0
	for {
		line, err := in.ReadSlice('\n')
		if at := handshakeLine.FindIndex(line); at != nil {
			_, _ = r.log.Write(line[:at[0]])
			r.shaken.Store(true)
			_, err = handshake.Write(line[at[0]:])
			return err
		}
		read += len(line)
		_, _ = r.noise.Write(line)
		_, _ = r.log.Write(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if read > maxNoise {
			return errStdoutFlood
		}
	}
}

func (r *processRunner) readStderr(stderr *os.File) {
	defer stderr.Close()
	_, _ = io.Copy(io.MultiWriter(r.tail, r.log), stderr)
}

func (r *processRunner) Wait(context.Context) error {
	<-r.process.Done()
	return nil
}

func (r *processRunner) Kill(context.Context) error {
	r.killGroup()
	<-r.process.Done()
	return nil
}

func (r *processRunner) Stdout() io.ReadCloser { return r.handshake }

// Stderr returns an empty reader: readStderr reads the actual stderr.
func (r *processRunner) Stderr() io.ReadCloser { return io.NopCloser(bytes.NewReader(nil)) }

func (r *processRunner) Name() string { return r.command.Path }

func (r *processRunner) ID() string {
	if r.process == nil {
		return ""
	}
	return strconv.Itoa(r.process.Pid())
}

func (r *processRunner) Diagnose(context.Context) string { return "" }

func (r *processRunner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (r *processRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// runnerFunc takes only the added environment variables from go-plugin's command.
func (r *processRunner) runnerFunc(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
	r.env, r.socketDir = cmd.Env, socketDir
	return r, nil
}

// sharedWriter lets several goroutines write to one writer.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Ignore errors: a log that cannot be written must not block the process.
	_, _ = s.w.Write(p)
	return len(p), nil
}
