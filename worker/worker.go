// Package worker is one device, its kernel, and one chunk after the other: reading
// records, checking them, giving them to the kernel in batches, finding the
// record that a failed batch fails by, and writing what came of each.
//
//	chunk ──► read, check ──► kernel process ──► splice, check ──► part
//	            (ahead)       (batches in flight)   (behind)
//
// A worker is a process of its own, a fresh start of the same program with its
// device pinned. It listens to its orchestrator on descriptor 3; when that ends,
// however it ends, the worker kills its kernel with everything the kernel has
// started, and exits. Between the two stands a guard, a small process that does the same
// when the worker itself is killed, alone or together with its orchestrator.
//
// It knows nothing of other workers, of the order of chunks or of devices beside
// its own.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// aliveInterval is how often a worker shows that it lives.
const aliveInterval = 5 * time.Second

// Worker is this process.
type Worker struct {
	conn      *wire.Conn
	builtins  []string
	log       *slog.Logger
	setup     wire.Setup
	host      *kernelHost
	sizes     batchSizes
	columns   columnNames
	judged    bool            // enough of the first records were looked at
	first     wire.FirstBatch // what is known of them
	searched  bool            // it was told that records are looked for
	proof     proof
	sampled   bool // of the first batch that was searched some were tried before
	stops     *stops
	begun     int64       // chunks so far
	scarce    atomic.Bool // keep no batch waiting
	pace      *pacer
	computing computing
	assigned  chan wire.Assign
	trims     chan struct{} // asked for, not done yet
}

// run is the whole life of a worker process; it returns the exit status.
func run(builtins []string) int {
	proc.SurviveStopSignals()
	proc.CloseOnExec(wire.Descriptor)
	_ = proc.BecomeSubreaper() // without it, process groups must do
	proc.ReapOrphans()         // for as long as this process lives
	file := os.NewFile(wire.Descriptor, "orchestrator")
	if file == nil {
		return 2
	}
	w := &Worker{
		conn: wire.NewConn(file), builtins: builtins, pace: newPacer(), stops: newStops(),
		assigned: make(chan wire.Assign, 1), trims: make(chan struct{}, 1),
	}

	first, err := w.conn.Receive()
	if err != nil || first.Setup == nil {
		return 2
	}
	w.setup = *first.Setup
	if w.setup.KillWait > 0 {
		proc.SetKillWait(w.setup.KillWait)
	}
	w.log = newLogger(w.setup)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.sizes.want = w.setup.Records.BatchSize
	if w.setup.Records.AutoBatch {
		w.sizes.auto = newTuner(w.sizes.want)
	}
	w.host = &kernelHost{
		setup: w.setup, builtins: builtins, log: w.log,
		limits: newLimits(w.setup),
	}

	go w.listen(cancel)
	go w.showAlive(ctx)
	w.serve(ctx)
	w.clean()
	return 0
}

// newLogger logs to standard error, which is the worker's log file.
func newLogger(setup wire.Setup) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(setup.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	handler := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	return slog.New(handler).With("device", setup.Device.Name)
}

// listen ends the process when the orchestrator is gone: first everything below
// it, then itself, whatever it is doing.
func (w *Worker) listen(cancel context.CancelFunc) {
	defer cancel()
	for {
		message, err := w.conn.Receive()
		if err != nil {
			w.clean()
			os.Exit(0)
		}
		w.take(message)
	}
}

// take does what a message says, or leaves it where the chunk's work will find it.
func (w *Worker) take(message wire.Message) {
	switch {
	case message.Assign != nil:
		w.stops.assign(message.Assign.Chunk.First)
		w.assigned <- *message.Assign
	case message.Stop != nil:
		crash.Point("worker-stopping")
		w.stops.take(*message.Stop)
		w.pace.nudge()
	case message.Scarce != nil:
		w.scarce.Store(true)
	case message.Pace != nil:
		w.pace.set(*message.Pace)
	case message.Trim != nil:
		w.askTrim()
	case message.End != nil:
		close(w.assigned)
	}
}

// cleaning keeps the two ways to an end from meeting: the second waits until
// the first has ended the process.
var cleaning sync.Mutex

// clean leaves nothing behind: no process, no socket.
func (w *Worker) clean() {
	cleaning.Lock()
	w.host.end()
	// A kernel that was being started at this moment may still make its socket.
	for range 3 {
		proc.KillChildren()
		if os.RemoveAll(w.setup.SocketDir) == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *Worker) showAlive(ctx context.Context) {
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = w.conn.Send(wire.Message{Alive: &wire.Alive{}})
		case <-ctx.Done():
			return
		}
	}
}

// serve opens the kernel and computes what is assigned.
func (w *Worker) serve(ctx context.Context) {
	info, err := w.host.describe(ctx)
	if err == nil && !w.setup.DescribeOnly {
		crash.Point("worker-start")
		err = w.host.open(ctx)
	}
	if err != nil {
		w.fail(err)
		return
	}
	if w.setup.DescribeOnly {
		crash.Point("worker-describe")
		w.host.close()
		w.send(wire.Message{Ready: &wire.Ready{Info: wire.Info(info), Files: w.host.named.Files, Interpreter: w.host.interpreter()}})
		return
	}
	w.log.Info("kernel ready", "kernel", w.setup.Kernel)
	w.send(wire.Message{Ready: &wire.Ready{Info: wire.Info(info), Sources: w.host.takeSources()}})
	for {
		run, err := w.nextRun(ctx)
		if err == nil && run == nil {
			w.host.close()
			return
		}
		var done wire.Done
		if err == nil {
			done, err = w.finish(ctx, run)
		}
		if err != nil {
			w.fail(err)
			return
		}
		done.Sources, done.Warnings = w.host.takeSources(), w.host.takeWarnings()
		crash.Point("worker-part-closed")
		w.send(wire.Message{Done: &done})
	}
}

// nextRun is the chunk that was begun behind the last, or else the next that is
// assigned; nil if none will be.
func (w *Worker) nextRun(ctx context.Context) (*chunkRun, error) {
	if w.computing.next != nil {
		return w.computing.next, nil
	}
	for {
		select {
		case <-w.trims:
			w.trim(ctx)
		case assign, more := <-w.assigned:
			if !more {
				return nil, nil
			}
			return w.begin(ctx, assign)
		}
	}
}

func (w *Worker) send(m wire.Message) {
	if err := w.conn.Send(m); err != nil {
		w.log.Error("send to orchestrator", "error", err)
	}
}

func (w *Worker) fail(err error) {
	e := fault.As(err)
	if e == nil {
		kind := fault.Unknown
		if errors.Is(err, context.Canceled) {
			kind = fault.Canceled
		}
		e = fault.New(kind, "%w", err)
	}
	w.log.Error("worker cannot go on", "kind", e.Kind, "error", e.Message, "detail", e.Detail)
	w.send(wire.Message{Failed: &wire.Failed{Fault: e, Sources: w.host.takeSources()}})
}
