package exec

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/shell"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// program is a running instance of the user's program.
type program struct {
	process  *proc.Process
	stdin    *os.File
	out      *output
	words    *proc.Tail    // the end of stderr
	drained  chan struct{} // closed when stderr has been read to the end
	answered bool          // it has written a line
	ending   bool          // its input ends, or has ended
}

const (
	// exitGrace is how long a program may take to exit after the end of its input.
	exitGrace = 5 * time.Second
	// drainTime is how long to keep reading output after the program has exited: its
	// children may hold the pipe open forever.
	drainTime = 100 * time.Millisecond
	// feedGrace is how long the program may take to read the rest of its input after it
	// has written all answers.
	feedGrace = 2 * time.Second
	// lineCost is the memory overhead of a line.
	lineCost = 32
	// surplusLines is the number of lines beyond twice the number of records after which
	// the kernel stops reading a batch's output.
	surplusLines = 1000
)

// startProgram runs the command through the shell in its own process group, which dies
// with the program and with the kernel.
func startProgram(config resolve.ExecConfig) (*program, error) {
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

	path, args := shellCommand(config)
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
	p := &program{
		process: process, stdin: stdin, out: newOutput(stdout, config.MaxLine),
		words: new(proc.Tail), drained: make(chan struct{}),
	}
	go func() {
		defer close(p.drained)
		defer stderr.Close()
		_, _ = io.Copy(io.MultiWriter(p.words, os.Stderr), stderr)
	}()
	go func() {
		<-process.Done()
		p.out.setExited()
		_ = stderr.SetReadDeadline(time.Now().Add(drainTime))
	}()
	return p, nil
}

// shellCommand returns how to run the command.
func shellCommand(config resolve.ExecConfig) (string, []string) {
	args := shell.Args(config.Command)
	if config.Mode == ModeStream {
		if stdbuf, err := osexec.LookPath("stdbuf"); err == nil {
			return stdbuf, append([]string{"-oL", shell.Path}, args...)
		}
	}
	return shell.Path, args
}

func environment(config resolve.ExecConfig) []string {
	env := shell.Environment()
	if config.Mode == ModeStream && os.Getenv("PYTHONUNBUFFERED") == "" {
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	if len(config.Config) > 0 {
		env = append(env, "GPURUN_KERNEL_CONFIG="+string(config.Config))
	}
	return env
}

// exchangeAll writes the batch, ends the input, and returns the lines of a program that writes
// one per record and exits with status 0.
func (p *program) exchangeAll(batch plugins.Batch, id *identity) ([][]byte, error) {
	lines, err := p.toEnd(nil, batch.Len(), p.feed(batch, true))
	if err != nil || id == nil {
		return lines, err
	}
	if proved, err := id.verify(batch, lines); err != nil {
		return nil, wrongLine(proved, err, lines)
	}
	return lines, nil
}

// toEnd reads the rest of the output, which begins with lines, and returns it if the program
// writes one line per record and exits with status 0.
func (p *program) toEnd(lines [][]byte, records int, written <-chan struct{}) ([][]byte, error) {
	total := new(atomic.Int64)
	lines, err := p.collect(lines, written, func(lines [][]byte) error {
		if len(lines) > 2*records+surplusLines {
			return p.wrongCount(lines, records)
		}
		return p.measure(lines[len(lines)-1], total)
	})
	if err == nil && len(lines) != records {
		err = p.wrongCount(lines, records)
	}
	return lines, err
}

// collect appends the rest of the output to lines, and returns all of a program that exits with
// status 0. It calls check after each line and kills the program if check returns an error.
func (p *program) collect(lines [][]byte, written <-chan struct{}, check func(lines [][]byte) error) ([][]byte, error) {
	for {
		line, err := p.out.line()
		failure := err
		if err == nil || len(line) > 0 {
			lines = append(lines, line)
			failure = check(lines)
		}
		if errors.Is(err, errTooLong) {
			failure = p.tooLong()
		}
		if failure != nil && !errors.Is(failure, io.EOF) && !errors.Is(failure, os.ErrClosed) {
			p.process.KillGroup()
			p.stop(written)
			return nil, failure
		}
		if err != nil {
			break
		}
	}
	if exit, how := p.wait(written); exit.Code != 0 {
		return nil, p.failure("the program ended: "+how, exit)
	}
	return lines, nil
}

// wrongCount returns the failure of a program that did not write one line per record.
func (p *program) wrongCount(lines [][]byte, records int) error {
	text := fmt.Sprintf("the program wrote %s for %s", count(len(lines), "line"), count(records, "record"))
	if len(lines) > records {
		for i, line := range lines {
			if len(line) > 0 && !jsonline.Valid(line) {
				text += fmt.Sprintf("; line %d is not JSON%s", i+1, quoted(line))
				break
			}
		}
		text += "; it must write exactly one line per record, and messages to standard error"
	}
	p.process.KillGroup() // it may still write
	return p.failure(text, proc.Exit{})
}

// wrongLine returns the failure of a program whose line does not answer its record.
func wrongLine(at int, err error, lines [][]byte) error {
	return fault.WrongLines.New("exec: line %d does not answer its record: %w (exec-id)%s", at+1, err, quoted(lines[at]))
}

// tooLong returns the failure for a line over the limit.
func (p *program) tooLong() error {
	return fault.TooLarge.New("exec: the program wrote a line of more than %d bytes (max-record-bytes)", p.out.most)
}

// measure adds a line to the total output for the batch and enforces the limit.
func (p *program) measure(line []byte, total *atomic.Int64) error {
	if total.Add(int64(len(line))+lineCost) > maxAnswers {
		return fault.TooLarge.New("%w", errTooMuch)
	}
	return nil
}

// feed writes the records in a separate goroutine: a program may answer while it is still
// being fed, and neither side may block on the other's full pipe. A program that stops
// reading is detected by its missing answers.
func (p *program) feed(batch plugins.Batch, end bool) <-chan struct{} {
	written := make(chan struct{})
	go func() {
		defer close(written)
		w := bufio.NewWriterSize(p.stdin, 64<<10)
		for i := range batch.Len() {
			_, _ = w.Write(batch.Record(i))
			_ = w.WriteByte('\n')
		}
		_ = w.Flush()
		if end {
			p.stdin.Close()
		}
	}()
	return written
}

// stop closes the input, which also ends a blocked writer. The batch is not used after
// it returns.
func (p *program) stop(written <-chan struct{}) {
	p.stdin.Close()
	<-written
}

// wait waits for a program that has closed its output and returns how it exited.
func (p *program) wait(written <-chan struct{}) (exit proc.Exit, how string) {
	p.stop(written)
	if !p.process.End(exitGrace) {
		return proc.Exit{Code: -1}, fmt.Sprintf("it closed its output, did not exit within %s and was killed", exitGrace)
	}
	exit = p.process.Exit()
	return exit, exit.String()
}

// ended explains why the answers stopped.
func (p *program) ended(got, want int, partial bool, written <-chan struct{}) error {
	exit, how := p.wait(written)
	where := ""
	if partial {
		where = " and a partial one"
	}
	return p.failure(fmt.Sprintf("the program ended after %d of %d lines%s: %s", got, want, where, how), exit)
}

func (p *program) failure(what string, exit proc.Exit) error {
	<-p.drained // the program has exited, so this takes at most drainTime
	words := p.words.String()
	err := fmt.Errorf("exec: %s%s", what, proc.LastLine(words))
	if signal := shell.Exit(exit).Signal; signal != 0 {
		err = &killedError{err, proc.Exit{Code: -1, Signal: signal}}
	}
	return plugins.Detail(err, words)
}

// killedError is the failure of a program that was killed by a signal.
type killedError struct {
	error
	exit proc.Exit
}

// close ends the input and waits for the program. Any line that it still writes is one too many: if
// it can be an answer, the lines before it may be answers to other records.
func (p *program) close(proven bool) error {
	p.stdin.Close()
	timer := time.AfterFunc(exitGrace, p.process.KillGroup) // this also ends the read below
	defer timer.Stop()
	more, _ := io.ReadAll(io.LimitReader(p.out.lines, 1<<20))
	p.process.End(exitGrace)
	for line := range bytes.Lines(more) {
		if line = trimEnd(line); !proven && len(line) > 0 && json.Valid(line) {
			return surplus(line)
		}
	}
	switch exit := p.process.Exit(); {
	case exit.Signal == syscall.SIGKILL:
		return p.failure(fmt.Sprintf("the program did not exit within %s of the end of its input and was killed", exitGrace), proc.Exit{})
	case exit.Code != 0:
		return p.failure("the program ended: "+exit.String(), exit)
	case len(more) > 0 && !proven:
		return fmt.Errorf("exec: the program wrote more lines than it was given records%s; gpurun ignores them, because they are not JSON; %s", quoted(trimEnd(more)), advice)
	}
	return nil
}

func (p *program) kill() {
	p.process.KillGroup()
	<-p.process.Done()
	p.stdin.Close()
	p.out.pipe.Close()
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "exec: "+format+"\n", args...) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
