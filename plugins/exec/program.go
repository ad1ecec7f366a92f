package exec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"time"

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
}

const (
	// stallHint is how long a program may leave a batch unanswered before the
	// log says what the usual reason is.
	stallHint = 20 * time.Second
	// exitGrace is how long a program may take to end after its input has.
	exitGrace = 5 * time.Second
	drainTime = 100 * time.Millisecond
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
	p := &program{process: process, stdin: stdin, stdout: stdout, words: new(proc.Tail)}
	p.lines = bufio.NewReaderSize(stdout, 256<<10)
	go func() {
		defer stderr.Close()
		_, _ = io.Copy(io.MultiWriter(p.words, os.Stderr), stderr)
	}()
	go func() {
		<-process.Done()
		_ = stderr.SetReadDeadline(time.Now().Add(drainTime))
	}()
	return p, nil
}

// shell returns how to run the command. A lone program replaces the shell, so
// that signals and exit statuses are its own.
func shell(config plugins.ExecConfig) (string, []string) {
	script := config.Command
	if firstWord(script) != "" && !strings.ContainsAny(script, "|&;<>()\n") {
		script = "exec " + script
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
	env := os.Environ()
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
	if extra := p.lines.Buffered(); extra > 0 {
		return nil, errors.New("exec: the program wrote more lines than it was given")
	}
	written := p.feed(batch, false)
	hint := time.AfterFunc(stallHint, func() {
		fmt.Fprintf(os.Stderr, "exec: no full answer for %s; if the program answers only at the end of its input, use --exec-mode batch\n", stallHint)
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
	if p.lines.Buffered() > 0 {
		return nil, fmt.Errorf("exec: the program wrote more than %d lines for %d records", batch.Len(), batch.Len())
	}
	return lines, nil
}

// exchangeAll writes the batch, ends the input and reads to the end.
func (p *program) exchangeAll(batch plugins.Batch) ([][]byte, error) {
	lines, err := p.collect(batch)
	if err != nil {
		return nil, err
	}
	if len(lines) != batch.Len() {
		return nil, fmt.Errorf("exec: the program wrote %d lines for %d records", len(lines), batch.Len())
	}
	return lines, nil
}

// collect writes the batch, ends the input, and returns all lines of a program
// that ended well.
func (p *program) collect(batch plugins.Batch) ([][]byte, error) {
	p.feed(batch, true)
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
	p.process.End(exitGrace)
	if exit := p.process.Exit(); exit.Code != 0 {
		return nil, p.failure(fmt.Sprintf("the program ended: %s", exit))
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

// ended says why the answers stopped.
func (p *program) ended(got, want int, written <-chan error) error {
	p.stdin.Close() // frees the writer, if it still waits
	<-written
	p.process.End(exitGrace)
	return p.failure(fmt.Sprintf("the program ended after %d of %d lines: %s", got, want, p.process.Exit()))
}

func (p *program) failure(what string) error {
	time.Sleep(10 * time.Millisecond) // its last words may still be on their way
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
	rest, _ := io.ReadAll(io.LimitReader(p.lines, 1<<20))
	p.process.End(exitGrace)
	p.stdout.Close()
	if len(rest) > 0 {
		return errors.New("the program wrote more lines than it was given")
	}
	return nil
}

func (p *program) kill() {
	p.process.KillGroup()
	<-p.process.Done()
	p.stdin.Close()
	p.stdout.Close()
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
