package plugins

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/gpurun/gpurun/internal/proc"
)

// processRunner is go-plugin's way to the kernel process, instead of its own:
// that one forces the host's stdin and environment on the child, waits for ever
// on a pipe that a grandchild holds, and wedges on a long line of output.
type processRunner struct {
	command Command
	env     []string // of go-plugin: cookie, versions, socket folder
	log     io.Writer
	tail    *proc.Tail

	process   *proc.Process
	handshake *io.PipeReader
	noise     proc.Tail // what came on stdout instead of the handshake
}

// maxNoise is how much a kernel may print before its handshake. Libraries print
// banners; a program that floods is no kernel.
const maxNoise = 1 << 20

// drainTime is how long output is read on after the process has ended: a
// grandchild outside its group may hold the pipe open for ever.
const drainTime = 200 * time.Millisecond

var handshakeLine = regexp.MustCompile(`^\d+\|\d+\|(unix|tcp)\|[^|]+`)

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
	r.process, err = proc.Start(proc.Command{
		Path: r.command.Path, Args: r.command.Args, Dir: r.command.Dir,
		Env:    append(append([]string(nil), r.command.Env...), r.env...),
		Stdout: stdoutChild, Stderr: stderrChild,
		DieWithParent: true,
	})
	if err != nil {
		stdout.Close()
		stderr.Close()
		return err
	}
	reader, writer := io.Pipe()
	r.handshake = reader
	go r.readStdout(stdout, writer)
	go r.readStderr(stderr)
	go func() {
		<-r.process.Done()
		deadline := time.Now().Add(drainTime)
		_ = stdout.SetReadDeadline(deadline)
		_ = stderr.SetReadDeadline(deadline)
	}()
	return nil
}

// readStdout passes the handshake line on and everything else to the log. The
// reader's end is the end of the process, which is what go-plugin takes it for.
func (r *processRunner) readStdout(stdout *os.File, handshake *io.PipeWriter) {
	defer stdout.Close()
	in := bufio.NewReaderSize(stdout, 32<<10)
	err := r.findHandshake(in, handshake)
	if err == nil {
		_, _ = io.Copy(r.log, in)
	}
	if errors.Is(err, errStdoutFlood) {
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
		if handshakeLine.Match(line) && err == nil {
			_, err = handshake.Write(line)
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
	r.process.KillGroup()
	<-r.process.Done()
	return nil
}

func (r *processRunner) Stdout() io.ReadCloser { return r.handshake }

// Stderr is read by readStderr; go-plugin gets an empty one.
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

// runnerFunc takes from go-plugin's command only the variables it added.
func (r *processRunner) runnerFunc(cmd *exec.Cmd) (runner.Runner, error) {
	r.env = cmd.Env
	return r, nil
}
