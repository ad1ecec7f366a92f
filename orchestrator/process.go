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

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

const (
	// endGrace is how long a worker may take to close its kernel; the worker
	// itself gives the kernel 10 s.
	endGrace = 15 * time.Second
	// killGrace is how long a worker and its guard may take to kill everything.
	killGrace = 2 * time.Second
	// guardTimeout is how long a guard may take to start its worker.
	guardTimeout = time.Minute
	// silence ticks make a worker that shows no life lost: it is stopped, or
	// its machine is sick. Ticks are counted, not time: after the orchestrator
	// itself was stopped for an hour the first tick comes at once, and the
	// worker's messages with it.
	silenceTick  = 5 * time.Second
	silenceTicks = 12
)

// workerProcess is a running worker and the orchestrator's end of its wire.
type workerProcess struct {
	guard    *proc.Process // ends after the worker, and as it did
	lifeline *os.File      // whose end tells the guard to kill the worker
	pid      int           // the worker's
	file     *os.File
	conn     *wire.Conn
	messages chan wire.Message // closed when the worker is gone
	trimmed  chan wire.Trimmed // answers to Trim, the last of them
	label    string
	mark     string
	sockets  string // its folder for them
	log      string
	logStart int64        // where its own lines begin in the log
	stuck    []proc.Stuck // what could not be killed at its end
}

// workerOptions say what to start.
type workerOptions struct {
	binary string
	label  string
	env    []string
	cpus   []int
	log    string // path
	setup  wire.Setup
}

// startWorker starts a worker process, under a guard, and sends it its setup.
func startWorker(options workerOptions) (*workerProcess, error) {
	log, err := os.OpenFile(options.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, chunk.PrivateMode)
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
			default: // nobody has waited for the one before
			}
		case message.Alive != nil:
			select {
			case w.messages <- message:
			default: // nobody listens just now, and none is needed to be counted
			}
		default:
			w.messages <- message
		}
	}
}

// errSilent: the worker shows no life.
var errSilent = errors.New("silent")

// receive returns the worker's next message that means something. It fails when
// the worker is gone or silent, or ctx ends.
func (w *workerProcess) receive(ctx context.Context) (wire.Message, error) {
	ticker := time.NewTicker(silenceTick)
	defer ticker.Stop()
	silent := 0
	for {
		select {
		case message, ok := <-w.messages:
			if !ok {
				return message, errWorkerGone
			}
			if message.Alive == nil {
				return message, nil
			}
			silent = 0
		case <-ticker.C:
			if silent++; silent >= silenceTicks {
				return wire.Message{}, errSilent
			}
		case <-ctx.Done():
			return wire.Message{}, ctx.Err()
		}
	}
}

var errWorkerGone = errors.New("the worker process exited")

// endChunk asks the worker to end whatever it has at the next batch border.
func (w *workerProcess) endChunk() { _ = w.conn.Send(wire.Message{Stop: &wire.Stop{}}) }

// endJob is endChunk for a job that stops: the batches in flight may take so long.
func (w *workerProcess) endJob(drain time.Duration) {
	_ = w.conn.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: drain}})
}

// endOnly asks it to end the chunk with that first record.
func (w *workerProcess) endOnly(first int64) {
	_ = w.conn.Send(wire.Message{Stop: &wire.Stop{Only: &first}})
}

// makeScarce lets the worker keep no batch waiting from now on.
func (w *workerProcess) makeScarce() { _ = w.conn.Send(wire.Message{Scarce: &wire.Scarce{}}) }

// end lets the worker close its kernel and waits for it.
func (w *workerProcess) end() {
	_ = w.conn.Send(wire.Message{End: &wire.End{}})
	w.reap(endGrace)
}

// abandon ends the worker and everything below it, and does not wait: whoever follows
// its messages sees it go. It may be called from any goroutine.
func (w *workerProcess) abandon() {
	// The end of the connection tells a living worker to kill its kernel, which
	// it can do better than we: it is the subreaper. A stopped one cannot, and its
	// guard does it.
	w.file.Close()
	w.lifeline.Close()
}

// kill ends the worker and everything below it at once.
func (w *workerProcess) kill() {
	w.abandon()
	w.reap(killGrace)
}

// reap waits for the process, kills what is left of it, and frees the wire.
func (w *workerProcess) reap(grace time.Duration) {
	go func() { // its reader must not block on messages that nobody wants
		for range w.messages {
		}
	}()
	w.guard.End(grace)
	_, w.stuck = proc.KillMarked(w.mark)
	_ = os.RemoveAll(w.sockets) // a killed guard could not
	w.file.Close()
	w.lifeline.Close()
}

// lost returns why a worker that cannot be talked to is gone: its exit status
// rather than the end of its connection.
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

// lastLines is the end of a log from an offset on, for a person: what a process
// said last, without what we say when all is well.
func lastLines(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		from = max(from, size-(64<<10)) // more would not fit a message anyway
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

// threadVariables are what numeric libraries, and Go, take their number of threads
// from; without them each of k workers would start as many as there are cores. The
// workers themselves save time by it where there are as many as cores: with records of
// 100 bytes a third, with 1 KB a tenth.
var threadVariables = []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS"}

// workerEnv is the user's environment with the device pinned and, unless the
// user set them, thread counts.
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

// describeKernel asks the kernel what it is, through a worker without a device.
func describeKernel(ctx context.Context, p *prepared, name string) (wire.Ready, error) {
	dir := filepath.Join(p.runDir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return wire.Ready{}, fault.New(fault.Storage, "make temporary folder: %w", err)
	}
	log := filepath.Join(p.runDir, name+".log")
	defer os.Remove(log)
	setup := p.setup(dir)
	setup.DescribeOnly = true
	w, err := startWorker(workerOptions{
		binary: p.config.WorkerBinary, label: name, setup: setup,
		env: workerEnv([]string{"CUDA_VISIBLE_DEVICES="}, cores()),
		log: log,
	})
	if err != nil {
		return wire.Ready{}, err
	}
	message, err := w.receive(ctx)
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

// unusable makes of a kernel that cannot even be described one that the job
// cannot use.
func unusable(err error) error {
	switch fault.KindOf(err) {
	case fault.Crash, fault.Timeout, fault.Batch, fault.Record, fault.OOM:
		fault.As(err).Kind = fault.Incompatible
	case fault.Worker: // a limit of the system, or somebody killed it: not the kernel's fault
		fault.As(err).Kind = fault.Stopped
	}
	return err
}

// setup is what all workers of the job are told.
func (p *prepared) setup(socketDir string) wire.Setup {
	return wire.Setup{
		Proven: p.proven(),
		Kernel: p.config.Kernel, KernelConfig: p.config.KernelConfig, ExecMode: p.config.ExecMode, ExecID: p.config.ExecID,
		Python: wire.Python{Interpreter: p.config.Python, IOWorkers: p.config.IOWorkers, NaN: p.config.NaN},
		Dir:    p.config.Dir, PluginPath: p.config.pluginPath, SocketDir: socketDir,
		OpenTimeout: p.config.OpenTimeout, Timeout: p.config.Timeout, LeastTimeout: p.config.leastTimeout, LogLevel: p.config.LogLevel,
		Records: wire.Records{
			BatchSize: p.plan.BatchSize, BatchBytes: p.config.BatchBytes,
			MaxBytes: p.config.MaxRecordBytes, Keep: p.config.Keep, Reprocess: p.config.Reprocess,
			NoValidate:  p.config.NoValidate,
			ErrorsApart: p.config.Errors != "", Framed: p.config.framed, Step: p.config.Kernel,
			NaNFails: p.config.NaN == NaNError, AutoBatch: p.config.AutoBatch,
		},
	}
}
