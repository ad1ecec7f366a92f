package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
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

// workerProcess is a running worker and the orchestrator's end of its connection.
type workerProcess struct {
	guard    *proc.Process // exits after the worker, with the same status
	lifeline *os.File      // closing it makes the guard kill the worker
	pid      int           // the worker's
	file     *os.File
	conn     *wire.Conn
	messages chan wire.Message // closed when the worker has exited
	trimmed  chan wire.Trimmed // holds one response to Trim
	label    string
	mark     string
	sockets  string // its folder for sockets
	log      string
	logStart int64        // where its own lines begin in the log
	stuck    []proc.Stuck // processes that could not be killed when it ended
}

// workerOptions describe the worker to start.
type workerOptions struct {
	binary string
	label  string
	env    []string
	cpus   []int
	log    string // path
	setup  wire.Setup
}

// startWorker starts a worker process under a guard and sends it its setup.
func startWorker(options workerOptions) (*workerProcess, error) {
	log, err := os.OpenFile(options.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, files.PrivateMode)
	if err != nil {
		return nil, fault.New(fault.Storage, "create worker log: %w", err)
	}
	defer log.Close()
	logStart, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fault.New(fault.Storage, "create worker log: %w", err)
	}
	w := &workerProcess{
		messages: make(chan wire.Message, 16), trimmed: make(chan wire.Trimmed, 1), label: options.label,
		mark: wire.MarkVariable + "=" + proc.NewMark(), sockets: options.setup.SocketDir,
		log: options.log, logStart: logStart,
	}
	if err := w.start(options, log); err != nil {
		return nil, fault.New(fault.Worker, "start worker: %w", err)
	}
	go w.read()
	options.setup.KillWait = proc.KillWait()
	if w.pid, err = wire.ReceivePID(w.lifeline); err == nil {
		err = w.conn.Send(wire.Message{Setup: &options.setup})
	}
	if err != nil {
		return nil, w.lost(fault.New(fault.Worker, "set up worker: %w", err))
	}
	return w, nil
}

// start starts the guard, which starts the worker.
func (w *workerProcess) start(options workerOptions, log *os.File) error {
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
		Path: options.binary, Args: []string{wire.GuardArgument, options.label, w.sockets},
		Env: append(options.env, w.mark), Dir: options.setup.Dir,
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{theirs, guards}, CPUs: options.cpus,
	})
	if err != nil {
		ours.Close()
		lifeline.Close()
		return err
	}
	_ = lifeline.SetReadDeadline(time.Now().Add(guardTimeout))
	return nil
}

func (w *workerProcess) read() {
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
		case message.Alive != nil:
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

// receive returns the worker's next message other than heartbeats, or an empty one if wake
// comes first. It fails when the worker has exited or is silent, or when ctx ends.
func (w *workerProcess) receive(ctx context.Context, wake <-chan time.Time) (wire.Message, error) {
	ticker := time.NewTicker(silenceTick)
	defer ticker.Stop()
	silent := 0
	for {
		select {
		case message, ok := <-w.messages:
			if !ok {
				return message, errWorkerExited
			}
			if message.Alive == nil {
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

// endChunk asks the worker to end whatever it is computing at the next batch boundary.
func (w *workerProcess) endChunk() { _ = w.conn.Send(wire.Message{Stop: &wire.Stop{}}) }

// shareChunk asks the worker to hand back what it has not begun.
func (w *workerProcess) shareChunk() { _ = w.conn.Send(wire.Message{Stop: &wire.Stop{Share: true}}) }

// endJob is endChunk for a stopping job: the batches in flight may take up to drain.
func (w *workerProcess) endJob(drain time.Duration) {
	_ = w.conn.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: drain}})
}

// endOnly asks the worker to end only the chunk with that first record.
func (w *workerProcess) endOnly(first int64) {
	_ = w.conn.Send(wire.Message{Stop: &wire.Stop{Only: &first}})
}

// sendDraining makes the worker stop keeping batches waiting.
func (w *workerProcess) sendDraining() { _ = w.conn.Send(wire.Message{Draining: &wire.Draining{}}) }

// end lets the worker close its kernel and waits for it. It returns what the kernel reports last.
func (w *workerProcess) end() (warnings []string) {
	_ = w.conn.Send(wire.Message{End: &wire.End{}})
	for _, message := range w.reap(endGrace) {
		if message.Warned != nil {
			warnings = append(warnings, message.Warned.Warnings...)
		}
	}
	return warnings
}

// abandon ends the worker and its descendants without waiting; the goroutine that
// receives its messages sees it exit. It is safe to call from any goroutine.
func (w *workerProcess) abandon() {
	// Closing the connection makes a live worker kill its kernel, which it does better
	// than we could, as the subreaper. A stopped worker cannot, and its guard does it.
	w.file.Close()
	w.lifeline.Close()
}

// kill ends the worker and its descendants at once.
func (w *workerProcess) kill() {
	w.abandon()
	w.reap(killGrace)
}

// reap waits for the process, kills what remains of it, and frees the connection. It returns
// the messages that were not received yet.
func (w *workerProcess) reap(grace time.Duration) (last []wire.Message) {
	read := make(chan struct{})
	go func() { // its reader must not block
		defer close(read)
		for message := range w.messages {
			last = append(last, message)
		}
	}()
	w.guard.End(grace)
	_, w.stuck = proc.KillMarked(w.mark)
	_ = os.RemoveAll(w.sockets) // a killed guard could not
	w.file.Close()
	w.lifeline.Close()
	<-read
	return last
}

// lost returns why a worker cannot be reached: its exit status rather than the closed
// connection.
func (w *workerProcess) lost(err error) *fault.Error {
	if errors.Is(err, errSilent) {
		w.kill()
		return fault.New(fault.Worker, "the worker was silent for %s and was killed", silenceTicks*silenceTick)
	}
	w.kill()
	return fault.New(fault.Worker, "the worker process exited: %s", w.guard.Exit()).WithDetail(lastLines(w.log, w.logStart))
}

func randomName() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
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

// workerEnv returns the user's environment with the device pinned and, unless the user
// set them, thread counts.
func workerEnv(pin []string, threads int) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == wire.MarkVariable || slices.ContainsFunc(pin, func(p string) bool {
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

// describeKernel asks the kernel to describe itself, through a worker without a device.
func describeKernel(ctx context.Context, p *prepared, name string) (wire.Ready, error) {
	dir := filepath.Join(p.runDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return wire.Ready{}, fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	log := filepath.Join(p.runDir, name+".log")
	defer os.Remove(log)
	setup := p.setup(dir)
	setup.DescribeOnly = true
	w, err := startWorker(workerOptions{
		binary: p.config.WorkerBinary, label: name, setup: setup,
		env: workerEnv([]string{"CUDA_VISIBLE_DEVICES="}, p.config.cores()),
		log: log,
	})
	if err != nil {
		return wire.Ready{}, err
	}
	message, err := w.receive(ctx, nil)
	switch {
	case ctx.Err() != nil:
		w.kill()
		return wire.Ready{}, ctx.Err()
	case err != nil:
		return wire.Ready{}, w.lost(err)
	}
	w.end()
	switch {
	case message.Ready != nil:
		return *message.Ready, nil
	case message.Failed != nil:
		return wire.Ready{}, message.Failed.Fault
	}
	return wire.Ready{}, fmt.Errorf("the worker sent an unexpected response")
}

// unusable turns the failure to describe a kernel into a fault that stops the job.
func unusable(err error) error {
	switch fault.KindOf(err) {
	case fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.OOM:
		fault.As(err).Kind = fault.Incompatible
	case fault.Worker: // a system limit, or the worker was killed: not the kernel's fault
		fault.As(err).Kind = fault.Stopped
	}
	return err
}

// setup returns the settings that all workers of the job share.
func (p *prepared) setup(socketDir string) wire.Setup {
	setup := wire.Setup{
		Proven: p.proven(), Programs: p.programs,
		Kernel: p.config.Kernel.Name, KernelConfig: p.config.Kernel.Config, ExecMode: p.config.Kernel.ExecMode, ExecID: p.config.Kernel.ExecID,
		Python: wire.Python{Interpreter: p.config.Kernel.Python, IOWorkers: p.config.Kernel.IOWorkers, NaN: p.config.Kernel.NaN},
		Dir:    p.config.Dir, PluginPath: p.config.pluginPath, SocketDir: socketDir,
		OpenTimeout: p.config.Failures.OpenTimeout, Timeout: p.config.Failures.Timeout, Checkpoint: p.config.Resume.Checkpoint, LeastTimeout: p.config.leastTimeout, Retries: max(0, p.config.Failures.Retries),
		Figures: p.figuresPath, Asked: p.hasAsked(), Spend: wire.Spend{Requests: p.config.Resume.MaxRequests, Tokens: p.config.Resume.MaxTokens}, LogLevel: p.config.Display.LogLevel,
		Records: wire.Records{
			BatchSize: p.plan.BatchSize, BatchBytes: p.config.Batching.Bytes,
			MaxBytes: p.config.Input.MaxRecordBytes, Keep: p.config.Output.kept(), SourceField: p.config.Output.SourceField, Reprocess: p.config.Input.Reprocess,
			NoValidate: p.config.Input.NoValidate, GroupBy: p.plan.GroupBy, BatchCost: p.config.Batching.Cost,
			ErrorsApart: p.config.Output.Errors != "", Framed: p.config.framed || p.config.streaming, FrameFailures: p.config.streaming, Batch: p.config.Format == OpenAIBatch, Step: p.config.Kernel.Name,
			NaNFails: p.config.Kernel.NaN == NaNError, AutoBatch: p.config.Batching.Auto, GrowBatch: p.plan.GrowBatch,
			Columns: p.spec,
		},
		Fetch: p.config.fetchSetup(),
	}
	if p.layout != nil {
		setup.Layout = p.layout.Get()
	}
	return setup
}
