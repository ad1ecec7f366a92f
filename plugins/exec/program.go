package exec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins"
)

// program is the user's program, running.
type program struct {
	process *proc.Process
	stdin   *os.File
	stdout  *os.File
	lines   *bufio.Reader
	words   *proc.Tail
	drained chan struct{} // closed when the last of stderr is read
	settled bool          // the first batch was answered, and nothing came behind it
}

const (
	// stallHint is how long a program may leave a batch unanswered before the
	// log says what the usual reason is.
	stallHint = 20 * time.Second
	// exitGrace is how long a program may take to end after its input has.
	exitGrace = 5 * time.Second
	// drainTime is how long output is read on after the program has ended: what
	// it started may hold the pipe open for ever.
	drainTime = 100 * time.Millisecond
	// settleTime is how long the first answer is watched for lines too many, so
	// that a program with more than one line a record is found before its lines
	// are taken for the answers to other records.
	settleTime = 20 * time.Millisecond
	// feedGrace is how long the rest of the input may take when all answers are
	// there already.
	feedGrace = 2 * time.Second
)

// startProgram runs the command through the shell, in a group of its own that
// dies with it, and so that it dies with the kernel.
func startProgram(config plugins.ExecConfig) (*program, error) {
	stdinChild, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdinChild.Close()
	stdout, stdoutChild, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, err
	}
	defer stdoutChild.Close()
	stderr, stderrChild, err := os.Pipe()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return nil, err
	}
	defer stderrChild.Close()

	path, args := shell(config)
	process, err := proc.Start(proc.Command{
		Path: path, Args: args, Env: environment(config),
		Stdin: stdinChild, Stdout: stdoutChild, Stderr: stderrChild,
		DieWithParent: true,
	})
	if err != nil {
		stdin.Close()
		stdout.Close()
		stderr.Close()
		return nil, fmt.Errorf("exec: %w", err)
	}
	p := &program{process: process, stdin: stdin, stdout: stdout, words: new(proc.Tail), drained: make(chan struct{})}
	p.lines = bufio.NewReaderSize(untilEnd{stdout}, 256<<10)
	go func() {
		defer close(p.drained)
		defer stderr.Close()
		_, _ = io.Copy(io.MultiWriter(p.words, os.Stderr), stderr)
	}()
	go func() {
		<-process.Done()
		_ = stdout.SetReadDeadline(time.Now().Add(drainTime))
		_ = stderr.SetReadDeadline(time.Now().Add(drainTime))
	}()
	return p, nil
}

// untilEnd reads a program's output to its end, or, once the deadline after the
// program's own end has passed, until nothing is left in the pipe.
type untilEnd struct{ pipe *os.File }

func (u untilEnd) Read(b []byte) (int, error) {
	for {
		n, err := u.pipe.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !readable(u.pipe, 0) {
			return n, io.EOF
		}
		_ = u.pipe.SetReadDeadline(time.Now().Add(drainTime))
	}
}

// readable reports whether pipe has something to read, its end included, within
// the time.
func readable(pipe *os.File, within time.Duration) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	ready := false
	_ = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(within/time.Millisecond))
		ready = err == nil && n > 0 && poll[0].Revents&unix.POLLIN != 0
	})
	return ready
}

// shell returns how to run the command. A lone program replaces the shell, so
// that signals and exit statuses are its own.
func shell(config plugins.ExecConfig) (string, []string) {
	script := config.Command
	if word := firstWord(script); word != "" && !strings.ContainsAny(script, "|&;<>()\n") {
		if _, err := osexec.LookPath(word); err == nil { // not a word of the shell's own
			script = "exec " + script
		}
	}
	args := []string{"-c", script}
	if config.Mode == ModeStream {
		if stdbuf, err := osexec.LookPath("stdbuf"); err == nil {
			return stdbuf, append([]string{"-oL", "/bin/sh"}, args...)
		}
	}
	return "/bin/sh", args
}

// firstWord is the program's name where it can be read off without a shell.
func firstWord(command string) string {
	fields := strings.Fields(command)
	if len(fields) == 0 || strings.ContainsAny(fields[0], "$`'\"\\(){}=~*?[;|&<>!") {
		return ""
	}
	return fields[0]
}

func environment(config plugins.ExecConfig) []string {
	// What go-plugin told this process is not for the program: a gpurun kernel run
	// by mistake would answer with a handshake.
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "GPURUN_KERNEL=") || strings.HasPrefix(entry, "PLUGIN_")
	})
	if os.Getenv("PYTHONUNBUFFERED") == "" {
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	if len(config.Config) > 0 {
		env = append(env, "GPURUN_KERNEL_CONFIG="+string(config.Config))
	}
	return env
}

// exchange writes the batch and reads as many lines.
func (p *program) exchange(batch plugins.Batch) ([][]byte, error) {
	if p.extra(0) {
		return nil, errors.New("exec: the program wrote more lines than it was given")
	}
	written := p.feed(batch, false)
	hint := time.AfterFunc(stallHint, func() {
		fmt.Fprintf(os.Stderr, "exec: no full answer for %s; if the program keeps its lines back until its input ends, use --exec-mode batch; if it leaves some out, --exec-mode per-record\n", stallHint)
	})
	defer hint.Stop()
	lines := make([][]byte, 0, batch.Len())
	for len(lines) < batch.Len() {
		line, err := p.lines.ReadBytes('\n')
		if err != nil {
			return nil, p.ended(len(lines), batch.Len(), written)
		}
		lines = append(lines, trimEnd(line))
	}
	settle := settleTime
	if p.settled {
		settle = 0
	}
	if p.extra(settle) {
		p.stop(written)
		return nil, fmt.Errorf("exec: the program wrote more than %s for %s", count(batch.Len(), "line"), count(batch.Len(), "record"))
	}
	p.settled = true
	select {
	case <-written:
		return lines, nil
	case <-time.After(feedGrace):
		p.stop(written)
		return nil, errors.New("exec: the program answered every record without reading them all")
	}
}

// extra reports whether there is output that nobody asked for, or comes within
// the time. The end of a program's output is none: the next batch will meet it.
func (p *program) extra(within time.Duration) bool {
	if p.lines.Buffered() > 0 {
		return true
	}
	if !readable(p.stdout, within) {
		return false
	}
	_, err := p.lines.Peek(1)
	return err == nil
}

// exchangeAll writes the batch, ends the input and reads to the end.
func (p *program) exchangeAll(batch plugins.Batch) ([][]byte, error) {
	lines, err := p.collect(batch)
	if err != nil {
		return nil, err
	}
	if len(lines) != batch.Len() {
		return nil, fmt.Errorf("exec: the program wrote %s for %s", count(len(lines), "line"), count(batch.Len(), "record"))
	}
	return lines, nil
}

// collect writes the batch, ends the input, and returns all lines of a program
// that ended well.
func (p *program) collect(batch plugins.Batch) ([][]byte, error) {
	written := p.feed(batch, true)
	var lines [][]byte
	for {
		line, err := p.lines.ReadBytes('\n')
		if len(line) > 0 {
			lines = append(lines, trimEnd(line))
		}
		if err != nil {
			break
		}
	}
	if well, how := p.wait(written); !well {
		return nil, p.failure("the program ended: " + how)
	}
	return lines, nil
}

// feed writes the records beside the reading: a program may answer while it is
// still being fed, and neither side must wait for the other's full pipe. A
// program that stops reading is found by its missing answers.
func (p *program) feed(batch plugins.Batch, end bool) <-chan error {
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(p.stdin, 64<<10)
		for i := range batch.Len() {
			_, _ = w.Write(batch.Record(i))
			_ = w.WriteByte('\n')
		}
		err := w.Flush()
		if end {
			p.stdin.Close()
		}
		written <- err
	}()
	return written
}

// stop ends the input, and with it the writer, if it still waits: nobody touches
// the batch afterwards.
func (p *program) stop(written <-chan error) {
	p.stdin.Close()
	<-written
}

// wait waits for a program that has closed its output, and tells whether it ended
// well, and how.
func (p *program) wait(written <-chan error) (well bool, how string) {
	p.stop(written)
	if !p.process.End(exitGrace) {
		return false, fmt.Sprintf("it closed its output, did not exit within %s and was killed", exitGrace)
	}
	exit := p.process.Exit()
	return exit.Code == 0, exit.String()
}

// ended says why the answers stopped.
func (p *program) ended(got, want int, written <-chan error) error {
	_, how := p.wait(written)
	return p.failure(fmt.Sprintf("the program ended after %d of %d lines: %s", got, want, how))
}

func (p *program) failure(what string) error {
	<-p.drained // the program is gone: after drainTime at most
	words := p.words.String()
	last := ""
	if words != "" {
		last = ": " + words[strings.LastIndexByte(words, '\n')+1:]
	}
	return plugins.Detail(fmt.Errorf("exec: %s%s", what, last), words)
}

// close ends the input and waits for the program; lines that come only now were
// never asked for.
func (p *program) close() error {
	p.stdin.Close()
	timer := time.AfterFunc(exitGrace, p.process.KillGroup) // it ends the reading, too
	defer timer.Stop()
	rest, _ := io.ReadAll(io.LimitReader(p.lines, 1<<20))
	p.process.End(exitGrace)
	p.stdout.Close()
	exit := p.process.Exit()
	switch {
	case len(rest) > 0:
		return errors.New("exec: the program wrote more lines than it was given")
	case exit.Signal == syscall.SIGKILL:
		return p.failure(fmt.Sprintf("the program did not end within %s of its input and was killed", exitGrace))
	case exit.Code != 0:
		return p.failure("the program ended: " + exit.String())
	}
	return nil
}

func (p *program) kill() {
	p.process.KillGroup()
	<-p.process.Done()
	p.stdin.Close()
	p.stdout.Close()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
