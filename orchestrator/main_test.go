package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/worker"
)

// driverVariable holds the driverJob, as JSON, that this test binary runs as its own
// program, for tests that kill or measure it.
const driverVariable = "GPURUN_TEST_DRIVER"

// driverJob is what a driver does.
type driverJob struct {
	Config json.RawMessage // of an orchestrator.Config
	// DurableEvery is the interval between durable points.
	DurableEvery time.Duration
	// KillWait is how long a killed process may take to exit.
	KillWait time.Duration
	// Victim, a worker or a kernel, is killed when the orchestrator passes the point At
	// for the Passing-th time.
	Victim  string
	At      string
	Passing int64
}

// TestMain is the program: started again, the test binary is a worker, a kernel, a driver, or
// a proxy.
func TestMain(m *testing.M) {
	// Workers must not sleep at exit for the race detector.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if behind := os.Getenv(proxyVariable); behind != "" {
		proxy(behind, os.Args[1])
	}
	worker.Init(testKernels())
	if job := os.Getenv(driverVariable); job != "" {
		os.Unsetenv(driverVariable)
		os.Exit(drive(job))
	}
	goleak.VerifyTestMain(m)
}

// drive runs one job as a program would, and prints its events and its end, one per
// line. Events are points to die at: event-progress.
func drive(encoded string) int {
	var job driverJob
	var config orchestrator.Config
	if err := json.Unmarshal([]byte(encoded), &job); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(job.Config, &config); err != nil {
		panic(err)
	}
	config = orchestrator.WithDurableEvery(adapted(config), job.DurableEvery)
	if job.KillWait > 0 {
		proc.SetKillWait(job.KillWait)
	}
	ctx, abort := takeSignals()
	config.Abort = abort
	var hunt hunter
	if job.Victim != "" {
		crash.Hook = func(point string) { hunt.passed(job, point) }
	}
	config.Display.OnEvent = func(e orchestrator.Event) {
		hunt.note(e)
		tell(e.EventName(), e)
		crash.Point("event-" + e.EventName())
	}
	_, err := orchestrator.Run(ctx, config)
	if err != nil {
		tell("error", ended{fault.KindOf(err).String(), err.Error()})
		return 1
	}
	return 0
}

// takeSignals: the first SIGTERM stops the job, the second aborts it.
func takeSignals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	abort, signals := make(chan struct{}), make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		close(abort)
	}()
	return ctx, abort
}

// ended is how an unsuccessful job ended.
type ended struct{ Kind, Message string }

func tell(name string, value any) {
	line, _ := json.Marshal(value)
	fmt.Printf("%s %s\n", name, line)
}

// hunter kills a worker or a kernel from within the orchestrator, at a point.
type hunter struct {
	passings atomic.Int64
	mu       sync.Mutex
	workers  []int
}

func (h *hunter) note(e orchestrator.Event) {
	if started, ok := e.(orchestrator.WorkerStarted); ok {
		h.mu.Lock()
		h.workers = append(h.workers, started.PID)
		h.mu.Unlock()
	}
}

func (h *hunter) passed(job driverJob, point string) {
	if point != job.At || h.passings.Add(1) != max(1, job.Passing) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pid := range h.workers {
		if job.Victim == "kernel" {
			pid = kernelOf(pid)
		}
		if alive(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			for alive(pid) {
				time.Sleep(time.Millisecond)
			}
			tell("killed", pid)
			return
		}
	}
	tell("killed", 0)
}
