// Package worker drives one device and its kernel. It processes one chunk after another: it
// reads and checks records, sends them to the kernel in batches, isolates the record that
// makes a batch fail, and writes each record's outcome.
//
//	chunk ──► read, check ──► kernel process ──► splice, check ──► part
//	         (reads ahead)  (batches in flight)  (encodes after)
//
// A worker is a separate process: the same program, started again with its device pinned.
// It receives messages from its orchestrator on descriptor 3. When that connection closes
// for any reason, the worker kills its kernel and everything the kernel started, and exits.
// A guard, a small process between the two, does the same when the worker itself is killed,
// alone or together with its orchestrator.
//
// A worker knows nothing about other workers, the order of chunks, or devices other than
// its own.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/fetch"
)

// aliveInterval is how often a worker sends a heartbeat.
const aliveInterval = 5 * time.Second

// Worker is the state of a worker process.
type Worker struct {
	conn           *wire.Conn
	log            *slog.Logger
	setup          wire.Setup
	host           *kernelHost
	sizes          batchSizes
	opinion        opinion // what the first records show about the kernel
	searchReported bool    // the orchestrator knows that a search may take long
	proof          proof
	sampled        bool // records of the first failed batch were sampled
	batchPassed    bool // a batch succeeded as a whole
	// blamelessReported: the orchestrator knows that a batch fails although no record does.
	blamelessReported bool
	stops             *stops
	begun             int64        // number of chunks begun
	draining          atomic.Bool  // the job is ending: queue no extra batch
	sharing           atomic.Bool  // added workers share the device's memory
	busy              atomic.Int64 // how long the kernel has had work
	batches           atomic.Int64 // that have ended, or records of a concurrent kernel
	computed          atomic.Int64 // records that a concurrent kernel has computed
	awaits            atomic.Value // the wire.Awaits of the last report; empty at first
	pace              *pacer
	computing         *computing // of a kernel that computes batches
	assigned          chan wire.Assign
	renewed           chan wire.Renew // has room for the one before the next assignment
	trims             chan struct{}   // requested, not done yet
	fetcher           *fetch.Fetcher  // nil until a chunk is read whose records name files
	layouts           *layouts
}

// run is the whole life of a worker process. It returns the exit status.
func run(kernels map[string]func() plugins.Kernel) int {
	proc.SurviveStopSignals()
	proc.CloseOnExec(wire.Descriptor)
	_ = proc.BecomeSubreaper() // if this fails, killing process groups has to suffice
	proc.ReapOrphans()         // for the life of this process
	file := os.NewFile(wire.Descriptor, "orchestrator")
	if file == nil {
		return 2
	}
	w := &Worker{
		conn: wire.NewConn(file), pace: newPacer(), stops: newStops(),
		assigned: make(chan wire.Assign, 1), renewed: make(chan wire.Renew, 1), trims: make(chan struct{}, 1),
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
	w.layouts, w.opinion.send = newLayouts(w.setup, w.send), w.send
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.sizes.records.want = int64(w.setup.Records.BatchSize)
	w.sizes.cost.want = w.setup.Records.BatchCost
	if w.setup.Records.AutoBatch {
		w.sizes.auto = newTuner(w.setup.Records.BatchSize)
	}
	if w.setup.Records.GrowBatch {
		w.sizes.grown = newGrowth(w.setup.Records.BatchSize, newLimits(w.setup).timeout)
	}
	w.host = &kernelHost{
		setup: w.setup, builtins: slices.Sorted(maps.Keys(kernels)), kernels: kernels, log: w.log,
		limits: newLimits(w.setup), alone: alone{path: w.setup.Alone},
	}

	if !w.setup.DescribeOnly {
		w.host.start.send = w.send
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

// listen receives messages until the orchestrator disconnects. It then kills everything the
// worker started and exits the process, whatever the worker is doing.
func (w *Worker) listen(cancel context.CancelFunc) {
	defer cancel()
	for {
		message, err := w.conn.Receive()
		if err != nil {
			w.clean()
			os.Exit(0)
		}
		w.handle(message)
	}
}

// handle handles a message, or queues it for the goroutine that computes chunks.
func (w *Worker) handle(message wire.Message) {
	switch {
	case message.Assign != nil:
		w.stops.assign(message.Assign.Chunk.First)
		w.assigned <- *message.Assign
	case message.Stop != nil:
		crash.Point("worker-stopping")
		w.stops.request(*message.Stop)
		w.pace.nudge()
	case message.Draining:
		w.draining.Store(true)
	case message.Pace != nil:
		w.pace.set(*message.Pace)
	case message.Sharing != nil:
		w.sharing.Store(message.Sharing.Added)
	case message.Renew != nil:
		w.draining.Store(false)
		w.sharing.Store(false)
		w.busy.Store(0)
		w.batches.Store(0)
		w.computed.Store(0)
		w.pace.set(wire.Pace{Share: 1})
		select {
		case <-w.renewed: // a job may have had nothing to assign
		default:
		}
		w.renewed <- *message.Renew
	case message.Layout != nil:
		w.layouts.answer(*message.Layout)
	case message.Trim:
		select {
		case w.trims <- struct{}{}:
		default: // requests that arrive before the kernel has freed memory are merged into one
		}
		w.pace.nudge()
	case message.End:
		close(w.assigned)
	}
}

// cleaning serializes the two ways a worker can end: the second waits until the first has
// ended the process.
var cleaning sync.Mutex

// clean kills every process the worker started and removes its sockets.
func (w *Worker) clean() {
	cleaning.Lock()
	w.host.end()
	// A kernel that is starting right now may still create its socket.
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
			_ = w.conn.Send(wire.Message{Alive: true})
		case <-ctx.Done():
			return
		}
	}
}

// serve opens the kernel and computes the assigned chunks.
func (w *Worker) serve(ctx context.Context) {
	var err error
	if w.setup.GiveUp == nil {
		err = w.open(ctx)
	}
	if err == nil && !w.setup.DescribeOnly {
		err = newLoop(ctx, w).serve()
	}
	if err != nil {
		w.fail(err)
		return
	}
	err = w.host.close()
	if e := fault.As(err); e != nil && e.Code == fault.ExtraLines {
		w.fail(err)
	} else if err != nil {
		w.send(wire.Message{Warned: &wire.Warned{Warnings: []string{err.Error()}}})
	}
}

// open opens the kernel, or only describes it.
func (w *Worker) open(ctx context.Context) error {
	info, err := w.host.describe(ctx)
	if err != nil {
		return err
	}
	ready := wire.Ready{Info: info}
	if w.setup.DescribeOnly {
		crash.Point("worker-describe")
		_ = w.host.close() // it is logged
		ready.Files, ready.Data, ready.Interpreter = w.host.named.Files, w.host.named.Data, interpreterOf(w.host.setup, w.host.named)
	} else {
		crash.Point("worker-start")
		err := w.host.open(ctx)
		if e := fault.As(err); e != nil && e.Sign == fault.Outside && w.host.alone.path != "" { // the fault of another worker
			w.host.kill()
			_, err = w.host.alive(ctx)
		}
		if err != nil {
			return err
		}
		w.log.Info("kernel ready", "kernel", w.setup.Kernel)
		ready.Sources = w.host.newSources()
	}
	w.send(wire.Message{Ready: &ready})
	return nil
}

// report sends the outcome of a chunk, or of its beginning.
func (w *Worker) report(done wire.Done) {
	done.Computed, done.Batches = w.computed.Load(), w.batches.Load()
	done.Sources, done.Warnings = w.host.newSources(), w.host.newWarnings()
	crash.Point("worker-part-closed")
	w.send(wire.Message{Done: &done})
}

// renew applies what a new job brings, and reports whether the next assignment is its first.
func (w *Worker) renew() bool {
	select {
	case renew := <-w.renewed:
		w.setup.Figures, w.setup.Spend = renew.Figures, renew.Spend
		return true
	default:
		return false
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
		e = fault.KernelException.Of(kind, "%w", err)
	}
	w.log.Error("worker failed", "kind", e.Kind, "error", e.Message, "detail", e.Detail)
	w.send(wire.Message{Failed: &wire.Failed{Fault: e, Sources: w.host.newSources()}})
}

// awaited returns what the kernel waits for, as last reported.
func (w *Worker) awaited() wire.Awaits {
	what, _ := w.awaits.Load().(wire.Awaits)
	return what
}

// trim makes the kernel free memory and sends the response. No batch may be in flight.
func (w *Worker) trim(ctx context.Context) {
	answer := &wire.Trimmed{}
	ctx, cancel := w.stops.untilOverdue(ctx)
	defer cancel()
	if err := w.host.trim(ctx); err != nil {
		answer.Fault = fault.As(fault.KernelException.Wrap(err))
	}
	w.send(wire.Message{Trimmed: answer})
}

// rest pauses, unless the job stops.
func (w *Worker) rest(ctx context.Context, d time.Duration) error {
	rest, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-rest.Done():
		return ctx.Err()
	case <-w.stops.jobStopped:
		return errInterrupted
	}
}
