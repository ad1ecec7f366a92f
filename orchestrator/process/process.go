// Package process is a worker process as the orchestrator sees it: starting it under a guard,
// talking to it, ending it, its last words, and keeping it for the next job.
package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/wire"
)

const (
	// endGrace is how long a worker may take to close its kernel; the worker itself
	// gives the kernel 10 s.
	endGrace = 15 * time.Second
	// killGrace is how long a worker and its guard may take to kill everything.
	killGrace = 2 * time.Second
	// guardTimeout is how long a guard may take to start its worker.
	guardTimeout = time.Minute
	// A worker that sends nothing for silenceTicks ticks counts as lost: it is stopped,
	// or its machine is in trouble. Ticks are counted, not time: after the orchestrator
	// itself was stopped for an hour, the first tick arrives at once, along with the
	// worker's messages.
	silenceTick  = 5 * time.Second
	silenceTicks = 12
)

// Worker is a running worker and the orchestrator's end of its connection.
type Worker struct {
	guard     *proc.Process // exits after the worker, with the same status
	lifeline  *os.File      // closing it makes the guard kill the worker
	PID       int           // the worker's
	Templates int           // the process whose children are its forked interpreters; 0 for none
	file      *os.File
	conn      *wire.Conn
	messages  chan wire.Message // closed when the worker has exited
	trimmed   chan wire.Trimmed // holds one response to Trim
	Label     string
	mark      string // NAME=value
	cpu       func() time.Duration
	sockets   string // its folder for sockets
	log       string
	logStart  int64        // where its own lines begin in the log
	Stuck     []proc.Stuck // processes that could not be killed when it ended
	// Sources are the files that its kernel has loaded, for the next job.
	Sources []wire.Source
}

// Spec describes the worker to start.
type Spec struct {
	Binary string
	Label  string
	Env    []string
	CPUs   []int
	Log    string // path
	Setup  wire.Setup
	// Templates fork its interpreters; nil if they start fresh. Workers with the same Device share
	// them.
	Templates *Templates
	Device    string
}

// openLog opens the log to append to it.
func (s Spec) openLog() (*os.File, error) {
	return os.OpenFile(s.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, files.PrivateMode)
}

// Start starts a worker process under a guard and sends it its setup.
func Start(spec Spec) (*Worker, error) {
	log, err := spec.openLog()
	if err != nil {
		return nil, fault.JobFiles.New("create worker log: %w", err)
	}
	defer log.Close()
	logStart, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fault.JobFiles.New("create worker log: %w", err)
	}
	spec.Setup.Templates, spec.Setup.KeepWarm = spec.Templates.offer(spec)
	w := &Worker{
		Templates: spec.Templates.guard(spec.Device),
		messages:  make(chan wire.Message, 16), trimmed: make(chan wire.Trimmed, 1), Label: spec.Label,
		mark: wire.MarkVariable + "=" + proc.NewMark(), sockets: spec.Setup.SocketDir,
		log: spec.Log, logStart: logStart,
	}
	w.cpu = func() time.Duration { return spec.Templates.of(strings.TrimPrefix(w.mark, wire.MarkVariable+"=")) }
	if err := w.start(spec, log); err != nil {
		return nil, fault.WorkerLost.New("start worker: %w", err)
	}
	go w.read()
	spec.Setup.KillWait = proc.KillWait()
	if w.PID, err = wire.ReceivePID(w.lifeline); err == nil {
		err = w.conn.Send(wire.Message{Setup: &spec.Setup})
	}
	if err != nil {
		return nil, w.Lost(fault.WorkerLost.New("set up worker: %w", err))
	}
	return w, nil
}

// start starts the guard, which starts the worker.
func (w *Worker) start(spec Spec, log *os.File) error {
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	lifeline, guards, err := proc.SocketPair()
	if err != nil {
		ours.Close()
		return err
	}
	defer guards.Close()
	w.file, w.conn, w.lifeline = ours, wire.NewConn(ours), lifeline
	w.guard, err = proc.Start(proc.Command{
		Path: spec.Binary, Args: []string{wire.GuardArgument, spec.Label, w.sockets},
		Env: append(spec.Env, w.mark), Dir: spec.Setup.Dir,
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{theirs, guards}, CPUs: spec.CPUs,
	})
	if err != nil {
		ours.Close()
		lifeline.Close()
		return err
	}
	_ = lifeline.SetReadDeadline(time.Now().Add(guardTimeout))
	return nil
}

func (w *Worker) read() {
	defer close(w.messages)
	for {
		message, err := w.conn.Receive()
		if err != nil {
			return
		}
		switch {
		case message.Trimmed != nil:
			select {
			case w.trimmed <- *message.Trimmed:
			default: // the previous response was not picked up
			}
		case message.Alive:
			select {
			case w.messages <- message:
			default: // no receiver just now, and extra heartbeats do not count
			}
		default:
			w.messages <- message
		}
	}
}

// errSilent: the worker sends nothing.
var errSilent = errors.New("silent")

// Receive returns the worker's next message other than heartbeats, or an empty one if wake
// comes first. It fails when the worker has exited or is silent, or when ctx ends.
func (w *Worker) Receive(ctx context.Context, wake <-chan time.Time) (wire.Message, error) {
	ticker := time.NewTicker(silenceTick)
	defer ticker.Stop()
	silent := 0
	for {
		select {
		case message, ok := <-w.messages:
			if !ok {
				return message, errWorkerExited
			}
			if !message.Alive {
				return message, nil
			}
			silent = 0
		case <-ticker.C:
			if silent++; silent >= silenceTicks {
				return wire.Message{}, errSilent
			}
		case <-wake:
			return wire.Message{}, nil
		case <-ctx.Done():
			return wire.Message{}, ctx.Err()
		}
	}
}

var errWorkerExited = errors.New("the worker process exited")

// Send sends the worker a message. An error means that the worker has exited, which Receive
// reports.
func (w *Worker) Send(message wire.Message) { _ = w.conn.Send(message) }

// EndChunk asks the worker to end whatever it is computing at the next batch boundary.
func (w *Worker) EndChunk() { w.Send(wire.Message{Stop: &wire.Stop{}}) }

// End lets the worker close its kernel and waits for it. It returns what the kernel reports last:
// warnings, and why its results cannot be used.
func (w *Worker) End() (warnings []string, why *fault.Error) {
	_ = w.conn.Send(wire.Message{End: true})
	for _, message := range w.reap(endGrace) {
		if message.Warned != nil {
			warnings = append(warnings, message.Warned.Warnings...)
		}
		if message.Failed != nil && message.Failed.Fault.Code == fault.ExtraLines {
			why = message.Failed.Fault
		}
	}
	return warnings, why
}

// Abandon ends the worker and its descendants without waiting; the goroutine that
// receives its messages sees it exit. It is safe to call from any goroutine.
func (w *Worker) Abandon() {
	// Closing the connection makes a live worker kill its kernel, which it does better
	// than we could, as the subreaper. A stopped worker cannot, and its guard does it.
	w.file.Close()
	w.lifeline.Close()
}

// Kill ends the worker and its descendants at once.
func (w *Worker) Kill() {
	w.Abandon()
	w.reap(killGrace)
}

// reap waits for the process, kills what remains of it, and frees the connection. It returns
// the messages that were not received yet.
func (w *Worker) reap(grace time.Duration) (last []wire.Message) {
	read := make(chan struct{})
	go func() { // its reader must not block
		defer close(read)
		for message := range w.messages {
			last = append(last, message)
		}
	}()
	w.guard.End(grace)
	_, w.Stuck = proc.KillMarked(w.mark)
	_ = os.RemoveAll(w.sockets) // a killed guard could not
	w.file.Close()
	w.lifeline.Close()
	<-read
	return last
}

// Lost returns why a worker cannot be reached: its exit status rather than the closed
// connection.
func (w *Worker) Lost(err error) *fault.Error {
	w.Kill()
	if errors.Is(err, errSilent) {
		return fault.WorkerLost.New("the worker was silent for %s and was killed", silenceTicks*silenceTick)
	}
	return fault.WorkerLost.New("the worker process exited: %s", w.guard.Exit()).WithDetail(lastLines(w.log, w.logStart))
}

// lastLines returns the end of a log from an offset, for people: the last lines a
// process printed, without our own info messages.
func lastLines(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		from = max(from, size-(64<<10)) // more would not fit in a message anyway
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	var tail proc.Tail
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(" level=INFO ")) {
			_, _ = tail.Write(append(lines.Bytes(), '\n'))
		}
	}
	return tail.String()
}

// threadVariables set the number of threads of numeric libraries and of Go. Without
// them each of k workers would start one thread per core. They also speed up the
// workers themselves when there are as many as cores: by a third with 100-byte records,
// by a tenth with 1 KB.
var threadVariables = []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS"}

// Env returns the user's environment with the device pinned and, unless the user
// set them, thread counts.
func Env(pin []string, threads int) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == wire.MarkVariable || name == template.MarkVariable || name == template.Variable || slices.ContainsFunc(pin, func(p string) bool {
			return strings.HasPrefix(p, name+"=")
		})
	})
	env = append(env, pin...)
	for _, name := range threadVariables {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"="+strconv.Itoa(threads))
		}
	}
	return env
}

// Options are what all worker processes of a job have in common.
type Options struct {
	Binary string
	// Setup returns the settings that all workers share.
	Setup  func() wire.Setup
	RunDir string // for sockets
	Cores  int
}

// Start starts a worker without a device for a special task.
func (o Options) Start(name string, change func(*wire.Setup)) (*Worker, error) {
	setup := o.Setup()
	setup.SocketDir = filepath.Join(o.RunDir, name)
	if err := os.MkdirAll(setup.SocketDir, 0o700); err != nil {
		return nil, fault.TempFolder.New("make temporary folder: %w", err)
	}
	change(&setup)
	return Start(Spec{
		Binary: o.Binary, Label: name, Setup: setup,
		Env: Env([]string{"CUDA_VISIBLE_DEVICES="}, o.Cores),
		Log: filepath.Join(o.RunDir, name+".log"),
	})
}

// Describe asks the kernel to describe itself, unless an earlier job with the pool has.
func (o Options) Describe(ctx context.Context, pool *Pool) (wire.Ready, error) {
	key := Key(o.Setup(), nil)
	if pool != nil {
		if known, ok := pool.infos.Load(key); ok {
			return known.(wire.Ready), nil
		}
	}
	ready, err := o.ask(ctx, "plan")
	switch fault.KindOf(err) {
	case fault.Worker, fault.Crash: // possibly by chance; the kernel reports its own failures
		ready, err = o.ask(ctx, "plan-again")
	}
	if err == nil && pool != nil {
		pool.infos.Store(key, ready)
	}
	return ready, err
}

// ask asks the kernel to describe itself, through a worker without a device.
func (o Options) ask(ctx context.Context, name string) (wire.Ready, error) {
	defer os.Remove(filepath.Join(o.RunDir, name+".log"))
	w, err := o.Start(name, func(setup *wire.Setup) { setup.DescribeOnly = true })
	if err != nil {
		return wire.Ready{}, err
	}
	message, err := w.Receive(ctx, nil)
	switch {
	case ctx.Err() != nil:
		w.Kill()
		return wire.Ready{}, ctx.Err()
	case err != nil:
		return wire.Ready{}, w.Lost(err)
	}
	w.End()
	switch {
	case message.Ready != nil:
		return *message.Ready, nil
	case message.Failed != nil:
		return wire.Ready{}, message.Failed.Fault
	}
	return wire.Ready{}, fmt.Errorf("the worker sent an unexpected response")
}

// CPU returns the CPU time of the processes of a worker that has exited.
func (w *Worker) CPU() time.Duration { return w.guard.Exit().CPU + w.cpu() }

// LastWords returns the last line that the worker or its kernel logged, or where to
// find the log.
func (w *Worker) LastWords() string {
	words := lastLines(w.log, w.logStart)
	if words == "" {
		return "the kernel's output is in " + w.log
	}
	return "its log ends with: " + words[strings.LastIndexByte(words, '\n')+1:]
}

// Trim asks a worker's kernel to free memory and waits for the response.
func (w *Worker) Trim(ctx context.Context) *fault.Error {
	select {
	case <-w.trimmed: // a late response to a caller that stopped waiting
	default:
	}
	if err := w.conn.Send(wire.Message{Trim: true}); err != nil {
		return fault.WorkerLost.New("ask the worker: %w", err)
	}
	select {
	case answer := <-w.trimmed:
		return answer.Fault
	case <-ctx.Done():
		return fault.KernelTimeout.New("no response in time: its batch is still running")
	}
}
