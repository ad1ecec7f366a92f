// Package fleet computes the chunks of a job: it keeps a worker process busy on every slot,
// replaces those that are lost, tells bad records from sick devices, and delivers segments.
//
// Chunks come in through Options.Source; segments leave through Options.Deliver, and whatever
// happens is an event.
package fleet

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// FirstProbe is how long a lost device is left alone before it is retried for the first time.
const FirstProbe = 30 * time.Second

// Options are what a fleet must know of its job. Its functions are called by several goroutines.
type Options struct {
	Source    *input.Source
	Check     func(chunk.Chunk) error // called with the first chunk; nil for none
	BatchSize int
	Window    int // how many batches a worker reads at a time
	Lane      Lane

	Slots    []event.Slot
	Registry *gpu.Registry  // every slot is acquired
	Stagger  bool           // the first worker opens its kernel alone
	Scaling  scaler.Options // the fleet sets Cores and Emit
	Monitor  *gpu.MonitorOptions
	Devices  gpu.Options
	// OnMonitor gets the monitor when it starts.
	OnMonitor func(*gpu.Monitor)

	Process     process.Options
	Templates   *process.Templates     // fork the interpreters of workers; nil: these start fresh
	Pool        *process.Pool          // nil: workers are not kept for the next job
	MakeDir     func() (string, error) // of the pool's sockets
	Parts, Logs string                 // folders
	NoAffinity  bool
	TunedFile   string // keeps the batch sizes that were found; "" for none
	// Locate returns a chunk with paths that a worker understands.
	Locate func(chunk.Chunk) chunk.Chunk
	// Sources checks the files that a worker has loaded. results: it has results, too. The
	// fault of kind Stopped ends the job, and the results must not be used.
	Sources func(list []wire.Source, results bool) *fault.Error
	// Layout decides on the columns of the job that a worker proposes. LayoutKnown is closed
	// once they are decided.
	Layout      func(columns.Layout) (columns.Layout, *fault.Error)
	LayoutKnown <-chan struct{}

	Retries      int // how often a chunk may lose its worker
	Checkpoint   time.Duration
	DrainTimeout time.Duration
	HandBack     time.Duration // how long a paused worker keeps its chunk
	FirstProbe   time.Duration // how long a lost device is left alone
	StallAfter   time.Duration // when a silent first batch is reported
	// Halt reports whether too many records failed; nil if no number is too many.
	Halt func(failed, records, total int64) bool

	Resumed bool        // there are results of earlier runs
	Before  chunk.Tally // those
	Answers int64       // logged by earlier runs, besides
	Case    judge.Case  // what is known about the kernel

	// Paused returns a channel that is closed when the job continues, nil unless it is paused.
	Paused func() <-chan struct{}
	Emit   func(event.Event)
	// Deliver takes finished segments. Delivered is called after the last.
	Deliver   func(context.Context, []chunk.Segment)
	Delivered func()
	// GiveUp writes a chunk with every record marked as failed.
	GiveUp func(c chunk.Chunk, path string, why *fault.Error) (chunk.Segment, error)
	// Usage returns what kernels count; Overspent is called when a worker may not send another
	// request. blind: a limit of tokens cannot hold.
	Usage     func() map[string]int64
	Overspent func(blind bool)
	// Abort ends the context of Run.
	Abort context.CancelFunc
}
