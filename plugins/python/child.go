package python

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/frame"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/shell"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
	"github.com/gpurun/gpurun/plugins/symptom"
)

//go:embed runner/*.py
var sources embed.FS

// modules are the runner's modules, each after those that it imports. A template has further ones.
var (
	modules         = []string{"api", "failure", "wire", "fields", "record", "batch", "encode", "columns", "reply", "chain", "devices", "clash", "describe", "ahead", "signals", "sources", "imports", "handover", "concurrent", "isolate", "function", "kernel", "prepare"}
	templateModules = append(slices.Clone(modules), "safety", "template", "warm")
)

// bootstrap starts the runner.
//
//go:embed bootstrap.py
var bootstrap string

// oldest is resolve.OldestPython.
var oldest = []int{3, 9}

const (
	// startTimeout is how long an interpreter may take to start: site-packages on
	// a network file system are slow.
	startTimeout = 2 * time.Minute
	// drainTime is how long output is read after the process has exited: its
	// children may hold the pipe open forever.
	drainTime = 200 * time.Millisecond
	// exitGrace is how long the process may take to exit once it has closed.
	exitGrace = 2 * time.Second
)

// child is a running Python process.
type child struct {
	what        string // for messages
	interpreter string
	version     string
	process     *proc.Process
	forked      *template.Child // the same, if a template has forked it
	control     *os.File
	channel     *frame.Conn
	memory      *memory // nil in a prepare process, which does not own any
	words       *proc.Tail
	printer     *printer
	drained     chan struct{}   // closed when all of its output has been read
	imports     plugins.Imports // of its template, too, if it was forked
	spoilt      atomic.Bool     // it was forked, and that did not work
	// terminal: it uses this process's standard input and output instead of the log.
	terminal bool
}

// startChild starts the interpreter that runs process from these files.
func startChild(ctx context.Context, interpreter string, terminal bool, files []string) (*child, error) {
	memory, err := newMemory(memorySizes)
	if err != nil {
		return nil, err
	}
	size, err := memory.writeModules()
	if err != nil {
		memory.close()
		return nil, err
	}
	c := &child{what: "the Python process", interpreter: interpreter, terminal: terminal}
	err = c.start(ctx, starting{
		program: "kernel", modules: size, from: 4, env: environment(), memory: []*os.File{memory.file},
		template: templateOf("kernel", interpreter, files, nil),
	})
	if err != nil {
		memory.close()
		return nil, err
	}
	c.memory = memory
	return c, nil
}

// runnerSource returns modules of the runner as the bootstrap expects them, after their hash.
func runnerSource(names []string) ([]byte, error) {
	var list [][2]string
	for _, name := range names {
		source, err := sources.ReadFile("runner/" + name + ".py")
		if err != nil {
			return nil, err
		}
		list = append(list, [2]string{name, string(source)})
	}
	data, err := json.Marshal(list)
	return fmt.Appendf(nil, "%x%s", sha256.Sum256(data), data), err
}

// writeModules writes the runner to where the bootstrap expects it.
func (m *memory) writeModules() (size int, err error) {
	data, err := runnerSource(modules)
	return copy(m.data, data), err
}

// starting is how to start an interpreter: forked from a template, or fresh.
type starting struct {
	program string
	modules int        // bytes of the runner's modules
	from    int        // the descriptor of the memory that begins with them
	memory  []*os.File // descriptors 4, 5, …
	env     []string
	// template is the request to fork it, without its message.
	template template.Request
}

// start starts the interpreter with the runner and waits for it to report its version.
func (c *child) start(ctx context.Context, s starting) error {
	err := c.begin(ctx, s.fork, helloTimeout)
	if !errors.Is(err, template.ErrRefused) {
		return err
	}
	return c.begin(ctx, s.launch, startTimeout)
}

// begin starts the interpreter in one of the two ways.
func (c *child) begin(ctx context.Context, start func(context.Context, *child, *os.File, proc.Command) (*proc.Process, error), within time.Duration) error {
	c.words, c.printer, c.drained, c.imports, c.forked = new(proc.Tail), newPrinter(os.Stderr), make(chan struct{}), plugins.Imports{}, nil
	if err := c.launch(ctx, start); err != nil {
		return err
	}
	if err := c.greet(ctx, within); err != nil {
		c.kill()
		return err
	}
	return nil
}

// launch starts a process and connects its channel, which is its descriptor 3, and its output.
func (c *child) launch(ctx context.Context, start func(context.Context, *child, *os.File, proc.Command) (*proc.Process, error)) error {
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return fmt.Errorf("make socket pair: %w", err)
	}
	defer theirs.Close()
	var command proc.Command
	stopReading, err := c.connectOutput(&command)
	if err == nil {
		c.process, err = start(ctx, c, theirs, command)
		if !c.terminal {
			command.Stdout.Close()
		}
	}
	if err != nil {
		ours.Close()
		if stopReading != nil {
			stopReading(time.Now())
		}
		return err
	}
	c.control, c.channel = ours, frame.NewConn(ours, maxFrame)
	process := c.process // c may start another
	go func() {
		<-process.Done()
		// Its children may hold the other ends open forever.
		deadline := time.Now().Add(drainTime)
		stopReading(deadline)
		_ = ours.SetReadDeadline(deadline)
	}()
	return nil
}

// launch starts a fresh interpreter.
func (s starting) launch(_ context.Context, c *child, channel *os.File, command proc.Command) (*proc.Process, error) {
	command.Path, command.Env = c.interpreter, s.env
	command.Args = []string{"-c", bootstrap, strconv.Itoa(s.modules), strconv.Itoa(s.from), s.program}
	command.ExtraFiles = append([]*os.File{channel}, s.memory...)
	command.DieWithParent, command.BlockStopSignals, command.Foreground = true, true, c.terminal
	process, err := proc.Start(command)
	if err != nil {
		return nil, fault.NoPython.New("start Python: %w", err)
	}
	return process, nil
}

// connectOutput connects the standard streams of a process: to the terminal, or its output
// to the log. The returned function ends the reading of its output at a deadline.
func (c *child) connectOutput(command *proc.Command) (stopReading func(time.Time), err error) {
	if c.terminal {
		command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
		close(c.drained)
		return func(time.Time) {}, nil
	}
	output, outputChild, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = outputChild, outputChild
	words, printer, drained := c.words, c.printer, c.drained // another start has its own
	go func() {
		defer close(drained)
		defer output.Close()
		printer.copy(words, output)
	}()
	return func(deadline time.Time) { _ = output.SetReadDeadline(deadline) }, nil
}

// mallocVariables keep glibc from returning the memory of a batch's strings to the
// system, only to fault it in again, page by page, for the next batch.
var mallocVariables = []string{"MALLOC_TRIM_THRESHOLD_=268435456", "MALLOC_MMAP_THRESHOLD_=33554432"}

// environment is what the interpreter gets.
func environment() []string {
	return append(shell.Environment(), unset(mallocVariables)...)
}

// unset returns the entries whose variables are not set.
func unset(entries []string) (list []string) {
	for _, entry := range entries {
		name, _, _ := strings.Cut(entry, "=")
		if _, set := os.LookupEnv(name); !set {
			list = append(list, entry)
		}
	}
	return list
}

// threadVariables set the number of threads of numeric libraries.
var threadVariables = []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"}

// preparerVariables are what the environment of a prepare process has beyond an interpreter's: it
// sees no GPU, and its libraries use this many threads, because there are other prepare processes.
func preparerVariables(threads int) []string {
	env := []string{"CUDA_VISIBLE_DEVICES="}
	for _, name := range threadVariables {
		env = append(env, name+"="+strconv.Itoa(threads))
	}
	if _, set := os.LookupEnv("TOKENIZERS_PARALLELISM"); !set && threads == 1 {
		env = append(env, "TOKENIZERS_PARALLELISM=false")
	}
	return env
}

// greet receives the version, which is the first message.
func (c *child) greet(ctx context.Context, within time.Duration) error {
	stop := context.AfterFunc(ctx, c.process.KillGroup)
	defer stop()
	var expired atomic.Bool
	timer := time.AfterFunc(within, func() {
		expired.Store(true)
		c.process.KillGroup()
	})
	defer timer.Stop()
	var hello struct {
		Version [3]int `json:"version"`
	}
	err := c.channel.Receive(&hello)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if c.forked != nil {
			c.forked.Spoil("a forked interpreter did not begin")
			return fmt.Errorf("%w: a forked interpreter did not begin", template.ErrRefused)
		}
		return c.stillborn(expired.Load())
	}
	c.version = fmt.Sprintf("%d.%d.%d", hello.Version[0], hello.Version[1], hello.Version[2])
	if slices.Compare(hello.Version[:], oldest) < 0 {
		return fault.NoPython.New("%s is Python %s; Python kernels need %s or newer: activate another environment, or name an interpreter",
			c.interpreter, c.version, resolve.OldestPython).Set("python")
	}
	return nil
}

// stillborn is the failure of an interpreter that exited before it reported its version.
func (c *child) stillborn(expired bool) error {
	how, outside := c.ending()
	exit := c.process.Exit()
	var e *fault.Error
	switch {
	case expired:
		e = fault.PythonNotStarted.Of(fault.Timeout, "Python (%s) did not start within %s and was killed%s", c.interpreter, startTimeout, c.lastLine())
	case outside:
		e = fault.KernelKilled.Of(fault.Crash, "Python (%s) was %s during startup: the system probably ran out of memory (check dmesg), "+
			"or a scheduler or a user killed it; free memory or request more, and run the command again%s", c.interpreter, exit, c.lastLine()).Signed(fault.Outside)
	case exit.Signal != 0:
		e = fault.PythonNotStarted.New("Python (%s) crashed during startup: %s%s", c.interpreter, exit, c.lastLine())
	default:
		e = fault.NoPython.New("%s is not a working Python interpreter: %s%s", c.interpreter, how, c.lastLine())
	}
	return e.WithDetail(c.lastWords())
}

// ending waits for the process to exit after its connection broke. It reports how the
// process ended and whether it was killed from outside.
func (c *child) ending() (how string, outside bool) {
	select {
	case <-c.process.Done():
	case <-time.After(exitGrace):
		c.process.KillGroup()
		<-c.process.Done()
		return "it closed its connection and was killed", false
	}
	exit := c.process.Exit()
	return exit.String(), exit.Foreign()
}

// lastWords is the end of the process's output. If the process has exited, lastWords
// waits for the remaining output.
func (c *child) lastWords() string {
	if c.process.Exited() {
		<-c.drained // after drainTime at most
	}
	lines := strings.Split(c.words.String(), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return isOurs([]byte(line)) }), "\n")
}

func (c *child) lastLine() string { return proc.LastLine(c.lastWords()) }

func (c *child) kill() {
	c.process.KillGroup()
	c.free()
}

// free waits for the process to exit and releases its resources.
func (c *child) free() {
	<-c.process.Done()
	<-c.drained
	c.control.Close()
	if c.memory != nil {
		c.memory.close()
	}
}

// explain turns the end of the connection into its cause: why the process exited.
func (c *child) explain(err error) error {
	if e := fault.As(err); e != nil { // it broke the protocol
		c.process.KillGroup()
		return e
	}
	how, outside := c.ending()
	return symptom.Died(fmt.Sprintf("%s ended: %s", c.what, how), outside, c.lastWords())
}

// missing is the error for requirements that are not installed, with the command
// that installs them.
func (c *child) missing(file string, names []string) error {
	return fault.NoPackage.New("kernel %s requires %s, which %s (Python %s) does not have; install it with: %s -m pip install %s",
		filepath.Base(file), strings.Join(names, ", "), c.interpreter, c.version,
		c.interpreter, strings.Join(quoted(names), " "))
}

// quoted quotes requirements for a shell: torch>=2 would redirect to a file.
func quoted(names []string) []string {
	list := slices.Clone(names)
	for i, name := range list {
		if strings.ContainsAny(name, "<>=!~;[ ") {
			list[i] = "'" + name + "'"
		}
	}
	return list
}

// withInterpreter adds which Python lacks a module: users often have another one in
// mind.
func (c *child) withInterpreter(err error) error {
	e := fault.As(err)
	if e == nil || !strings.HasPrefix(e.Message, "ModuleNotFoundError: ") {
		return err
	}
	return fault.NoPackage.Of(e.Kind, "%w in %s (Python %s): install it there, activate the environment that has it, or name another interpreter",
		err, c.interpreter, c.version).Set("python").WithDetail(e.Detail).InStep(e.Step)
}
