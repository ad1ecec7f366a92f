package orchestrator

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/scaling"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// The settings of a job are declared in package spec.
type (
	Input        = spec.Input
	Output       = spec.Output
	OutputArray  = spec.OutputArray
	Kernel       = spec.Kernel
	Fetch        = spec.Fetch
	FetchMember  = spec.FetchMember
	Devices      = spec.Devices
	Batching     = spec.Batching
	Resume       = spec.Resume
	Failures     = spec.Failures
	Halt         = spec.Halt
	Display      = spec.Display
	Stagger      = spec.Stagger
	ClaimRequest = spec.ClaimRequest
	Claim        = spec.Claim
)

// Defaults and values of settings; see package spec.
const (
	DefaultMaxRecordBytes = spec.DefaultMaxRecordBytes
	NaNNull               = spec.NaNNull
	NaNError              = spec.NaNError
	OpenAIBatch           = spec.OpenAIBatch
	NoGrouping            = spec.NoGrouping
	AutoWorkers           = spec.AutoWorkers
	StartFork             = spec.StartFork
	StartFresh            = spec.StartFresh
	StaggerAuto           = spec.StaggerAuto
	StaggerOn             = spec.StaggerOn
	StaggerOff            = spec.StaggerOff
)

// Config describes one job: its settings, whose groups are the headings of gpurun run --help,
// and what the program brings. Input.Path, Output.Path and Kernel.Name are required; the zero
// value of every other field selects its default.
type Config struct {
	Input    Input
	Output   Output
	Kernel   Kernel
	Fetch    Fetch
	Devices  Devices
	Batching Batching
	Resume   Resume
	Failures Failures
	Display  Display
	// Format is what the lines of input and output are: any JSON, or OpenAIBatch.
	Format string
	// Dir is the working folder of kernels; default the process's own.
	Dir string

	Program
}

// Program is what the program that runs a job brings.
type Program struct {
	// WorkerBinary is the gpurun program to start workers from; default this program. Set
	// it if this program's main does not call worker.Init.
	WorkerBinary string
	// Pool, if set, keeps workers with open kernels for the next job with the same pool.
	Pool *Pool `json:"-"`
	// Agreement, if set, is how the machines that share a job agree on the layout of its columns.
	Agreement Agreement `json:"-"`
	// Control, if set, lets other goroutines pause the job.
	Control *Control `json:"-"`
	// Abort, when closed, ends the job at once, without waiting for the batches being
	// computed. Canceling Run's context waits for those, up to Resume.DrainTimeout.
	Abort <-chan struct{} `json:"-"`
	// Options are for tests.
	Options Options `json:"-"`
}

// Agreement is where machines that share a job agree on the layout of its columns. Its methods are
// safe for concurrent use.
type Agreement interface {
	// Layout returns the layout, nil if there is none yet.
	Layout() (*columns.Layout, error)
	// FixLayout proposes a layout and returns the one that holds: the first that was proposed.
	FixLayout(proposed columns.Layout) (columns.Layout, error)
}

// Options replace the machine, the clock and intervals in tests. Their zero value is what
// everyone else wants.
type Options struct {
	noDurable    bool          // skip durable points, to measure their cost
	durableEvery time.Duration // between durable points
	unitBytes    int64         // of an encoded output
	leastTimeout time.Duration // the minimum a batch gets unless Timeout is set
	checkWait    time.Duration // how long workers wait for the check of an earlier run's output
	devices      gpu.Options
	clock        gpu.Clock
	handBack     time.Duration // how long a paused worker keeps its chunk
	firstProbe   time.Duration // how long a lost device is left alone
	stallAfter   time.Duration // how long a silent first batch goes unreported
	scaleEvery   time.Duration // how often the number of workers is reconsidered
	scaleFigures func(*scaling.Figures)
}

// settings returns what a job is, without the program that runs it.
func (c Config) settings() spec.Config {
	return spec.Config{
		Input: c.Input, Output: c.Output, Kernel: c.Kernel, Fetch: c.Fetch, Devices: c.Devices, Batching: c.Batching,
		Resume: c.Resume, Failures: c.Failures, Display: c.Display, Format: c.Format, Dir: c.Dir,
	}
}

// order is a job that is to be run: what it is, who runs it, and what it reads.
type order struct {
	*spec.Spec
	Program
	*emitter
	// inputs are what Input names, once the order is open.
	inputs *source.Inputs
	// stdin is standard input if the program feeds it with lines: see Stream.
	stdin   *format.Lines
	streams *source.Streams
	// beside are values that the records of the only input have beside their lines; nil for none.
	beside *source.Beside
	// sick are devices to leave out, because records of the job failed on them.
	sick    []SickDevice
	preview bool // only a plan is wanted
	// checkAll: workers wait until the output of an earlier run is checked.
	checkAll bool
	// repaired, if set, is where a damaged input that was replaced differs from what an
	// earlier run has read.
	repaired *input.Repaired
}

// open looks for the input.
func (o order) open() (*order, error) {
	o.emitter = &emitter{to: o.Display.OnEvent}
	setDefault(&o.Control, new(Control))
	setDefault(&o.Options.leastTimeout, o.LeastTimeout)
	setDefault(&o.Options.handBack, fleet.HandBackAfter)
	setDefault(&o.Options.firstProbe, fleet.FirstProbe)
	setDefault(&o.Options.stallAfter, fleet.StallAfter)
	setDefault(&o.Options.checkWait, 2*time.Second)
	if setDefault(&o.WorkerBinary, wire.Self()); o.WorkerBinary == "" {
		return nil, fault.NoWorkerProgram.New("no program to start workers from: call worker.Init first in main, or name a gpurun binary in Config.WorkerBinary")
	}
	return &o, o.findInput()
}

// open decides what the job is and looks for its input.
func (c Config) open() (*order, error) {
	s, err := spec.Resolve(c.settings())
	if err != nil {
		return nil, err
	}
	return order{Spec: s, Program: c.Program}.open()
}

func setDefault[T comparable](member *T, value T) {
	var zero T
	if *member == zero {
		*member = value
	}
}

// cores returns the number of CPUs that this process may use.
func (o *order) cores() int {
	if o.Options.devices.CPUs > 0 {
		return o.Options.devices.CPUs
	}
	return resources.Cores()
}

// emitter passes events to the embedding program, one at a time.
type emitter struct {
	to       func(Event) // nil: no listener
	mu       sync.Mutex
	finished bool // Finished, the last event, was emitted
}

func (e *emitter) emit(event Event) {
	if e.to == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return
	}
	_, e.finished = event.(Finished)
	e.to(event)
}

// notice shows the user a line.
func (e *emitter) notice(text string) { e.emit(Notice{Text: text}) }

// alarm shows one that even a quiet display must not hide.
func (e *emitter) alarm(text string) { e.emit(Notice{Text: text, Alarm: true}) }
