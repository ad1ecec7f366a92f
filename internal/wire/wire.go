// Package wire defines the messages between an orchestrator and its workers.
//
// Each side holds one end of a socket pair, the worker as descriptor 3. A message is a
// four-byte length and a JSON value. Messages only describe records and never contain
// them: "records a to b are these bytes of that file", "done so far", "stop after the
// current batch".
//
//	orchestrator                          worker
//	  Setup ─────────────────────────────►  start the kernel
//	  ◄──────────────── Start, Start, …, also after Ready and when the kernel is restarted
//	  ◄───────────────────────── Ready (or Failed)
//	  Assign ────────────────────────────►  compute a chunk
//	  ◄──────────────── Layout, with the first results of a job with columns
//	  Layout ────────────────────────────►  that of the job
//	  ◄──────────────── Progress, Progress, …
//	  ◄──────────────── ReadComplete, when all of it is read
//	  Assign ────────────────────────────►  prefetch the next, if there is one
//	  ◄──────────────── Done {segment, rest} (or Failed)
//	  Stop ──────────────────────────────►  end it after the current batch
//	  ◄──────────────── Remainder {rest}, if batches are in flight, then Done
//	  Renew ─────────────────────────────►  another job follows
//	  End ───────────────────────────────►  close the kernel, exit
//	  (connection closed) ───────────────►  kill everything, exit
package wire

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/plugins/kernel"
)

// Message is one message: exactly one member is set.
type Message struct {
	// To the worker.
	Setup  *Setup  `json:"setup,omitempty"`
	Assign *Assign `json:"assign,omitempty"`
	Stop   *Stop   `json:"stop,omitempty"`
	// Draining: the job comes to its end. From now on, the worker should not queue batches at its
	// kernel that another worker could compute.
	Draining bool     `json:"draining,omitempty"`
	Pace     *Pace    `json:"pace,omitempty"`
	Sharing  *Sharing `json:"sharing,omitempty"`
	// Trim asks the worker's kernel to release unused device memory after the current batch,
	// or immediately if it is idle.
	Trim  bool   `json:"trim,omitempty"`
	Renew *Renew `json:"renew,omitempty"`
	// End: no chunk follows. The worker closes the kernel and exits.
	End bool `json:"end,omitempty"`

	// Layout, in both directions, describes the rows of a job with columns. A worker proposes one,
	// with its first successful batch, and waits for the orchestrator's answer: the layout of the
	// job, which the first proposal has fixed.
	Layout *columns.Layout `json:"layout,omitempty"`

	// To the orchestrator.
	Start        *Start        `json:"start,omitempty"`
	Ready        *Ready        `json:"ready,omitempty"`
	Progress     *Progress     `json:"progress,omitempty"`
	Search       *Search       `json:"search,omitempty"`
	Suspect      *Suspect      `json:"suspect,omitempty"`
	Holding      *Holding      `json:"holding,omitempty"`
	Warned       *Warned       `json:"warned,omitempty"`
	ReadComplete *ReadComplete `json:"read_complete,omitempty"`
	// ReturnPrefetched returns the prefetched chunk untouched: the worker will not reach it soon.
	ReturnPrefetched bool       `json:"return_prefetched,omitempty"`
	Remainder        *Remainder `json:"remainder,omitempty"`
	Spent            *Spent     `json:"spent,omitempty"`
	Done             *Done      `json:"done,omitempty"`
	Failed           *Failed    `json:"failed,omitempty"`
	Trimmed          *Trimmed   `json:"trimmed,omitempty"`
	// Alive is a heartbeat, sent when there is nothing else to send.
	Alive bool `json:"alive,omitempty"`
}

// Assign gives the worker a chunk.
type Assign struct {
	// ID identifies the chunk in messages about it.
	ID    int64       `json:"id"`
	Chunk chunk.Chunk `json:"chunk"`
	// New: no worker has begun any of its records, so there are no answers to import.
	New bool `json:"new,omitempty"`
	// Part is the prefix of the names of its result files.
	Part string `json:"part"`
	// Final: no other device remains to try, so a record that does not fit this one's
	// memory is marked instead of handed back.
	Final bool `json:"final,omitempty"`
	// Blame: the chunk failed on several devices with an error that looks like a lost
	// device. Unless a good record fails the same way, its records are at fault.
	Blame bool `json:"blame,omitempty"`
}

// Stop asks the worker to end its chunk, and a prefetched one, after the current batch.
type Stop struct {
	// Only ends nothing but the part of the chunk that starts with this record: a checkpoint. The
	// worker continues with another part; see Done.Continues.
	Only *int64 `json:"only,omitempty"`
	// Share: other workers are idle. A worker that groups records finishes the window that
	// it has begun, since its batches cannot be shared, and hands back what follows.
	Share bool `json:"share,omitempty"`
	// Job: the whole job stops. That also ends bisecting, which may restart the kernel
	// as many times as there are records.
	Job bool `json:"job,omitempty"`
	// Drain is how long batches in flight may take when the job stops. The worker
	// abandons those that take longer. 0: no extra limit.
	Drain time.Duration `json:"drain,omitempty"`
}

// Pace sets how fast the worker may compute from now on.
type Pace struct {
	// Share is the share of time in which it may compute: 1 is all of it, 0 pauses it
	// after the current batch.
	Share float64 `json:"share"`
	// HandBack is how long a pause may last before the worker hands back the rest of its
	// chunk, as on Stop.
	HandBack time.Duration `json:"hand_back"`
}

// Sharing says whether workers that gpurun has added share the device's memory with this
// one from now on. A batch that does not fit is then not split: the chunk ends before it,
// with Done.Crowded, and gpurun removes a worker instead.
type Sharing struct {
	Added bool `json:"added"`
}

// Trimmed is the response to Trim. It may arrive between any other messages.
type Trimmed struct {
	// Fault explains why no memory was released; nil on success.
	Fault *fault.Error `json:"fault,omitempty"`
}

// Renew means that the job is done, and chunks of another one follow: what was said about
// the pace, about sharing memory and about the job's end no longer holds.
type Renew struct {
	// Figures and Spend are as in Setup.
	Figures string `json:"figures,omitempty"`
	Spend   Spend  `json:"spend,omitzero"`
}

// Ready means that the kernel is open, or described.
type Ready struct {
	Info kernel.Info `json:"info"`
	// Files are the kernel's files, which its results depend on.
	Files []string `json:"files,omitempty"`
	// Data lists the Files that are not code.
	Data []string `json:"data,omitempty"`
	// Interpreter is the absolute path of the Python interpreter, empty if none is used.
	Interpreter string `json:"interpreter,omitempty"`
	// Sources are the user's files that the open kernel has loaded.
	Sources []Source `json:"sources,omitempty"`
}

// Start is the start of a kernel: what it does now, and how long each phase has taken.
type Start struct {
	// Phase is importing, loading (the model), first_batch or done.
	Phase StartPhase `json:"phase"`
	// Importing is how long its process took to start and to import its code, Loading to load the
	// model, FirstBatch to compute the first batch; 0 if that is not done.
	Importing  time.Duration `json:"importing_ns"`
	Loading    time.Duration `json:"loading_ns"`
	FirstBatch time.Duration `json:"first_batch_ns"`
	// Imports are known when the kernel is open.
	Imports kernel.Imports `json:"imports,omitzero"`
}

// Took is how long all phases took.
func (s Start) Took() time.Duration { return s.Importing + s.Loading + s.FirstBatch }

// StartPhase is a phase of the start of a kernel.
type StartPhase string

const (
	StartImporting  StartPhase = "importing"
	StartLoading    StartPhase = "loading"     // the model
	StartFirstBatch StartPhase = "first_batch" // open, until it has computed a batch
	StartDone       StartPhase = "done"
)

// Progress reports the progress on a chunk.
type Progress struct {
	Chunk  int64        `json:"chunk"` // Assign.ID
	Counts chunk.Counts `json:"counts"`
	// Faulty is how many records of Counts failed in the kernel.
	Faulty int64 `json:"faulty,omitempty"`
	// Ahead is how many further records are computed, but not yet written because records
	// before them are not: batches of a window of grouped records.
	Ahead int64 `json:"ahead,omitempty"`
	// Computed is how many records a concurrent kernel has computed since the worker was ready,
	// or since the job was renewed. Imported answers do not count.
	Computed int64 `json:"computed,omitempty"`
	// Batches is how many batches, or records of a concurrent kernel, have ended since the worker was ready.
	Batches int64 `json:"batches"`
	// Awaits is what keeps the kernel from computing; empty if nothing does.
	Awaits Awaits `json:"awaits,omitempty"`
	// Busy is how long the worker's kernel has had work since it was ready. Tuning means
	// that the worker is still searching for the fastest batch size.
	Busy   time.Duration `json:"busy"`
	Tuning bool          `json:"tuning,omitempty"`
	// Memory is the memory held by the kernel's framework, if the kernel reports it.
	Memory *FrameworkMemory `json:"memory,omitempty"`
	// Latency is the latency of the batches since the last message of this chunk.
	Latency *histogram.Histogram `json:"latency,omitempty"`
}

// FrameworkMemory is the device memory that a framework holds. It is the monitor's type;
// authors of kernels have plugins.FrameworkMemory, which does not bring the driver along.
type FrameworkMemory = gpu.FrameworkMemory

// Search reports what the worker finds out about its kernel: exactly one member is set.
type Search struct {
	// Lost is how a whole batch failed, for the first time in the worker's life. The worker is
	// bisecting it to isolate the bad records, which may take long.
	Lost *fault.Error `json:"lost,omitempty"`
	// First is the outcome of the worker's first records. It precedes the Done of their chunk.
	First *judge.First `json:"first,omitempty"`
	// Blameless is set once in the worker's life, when a batch has failed twice as a whole and
	// none of its records fails.
	Blameless *Blameless `json:"blameless,omitempty"`
}

// Blameless is a batch that fails although none of its records does.
type Blameless struct {
	Fault   *fault.Error `json:"fault"`
	Records int          `json:"records"`
	// Alone: most of the records succeeded alone only, and no batch has succeeded yet.
	Alone bool `json:"alone,omitempty"`
}

// Awaits is what keeps a kernel from computing.
type Awaits string

const (
	AwaitsFiles  Awaits = "files"  // files of the next records have not arrived
	AwaitsServer Awaits = "server" // the kernel can try no record for now; see Holding
)

// Suspect is a record that has failed in the kernel. It is sent for some of those of a part,
// as soon as they are known, so that another device can compute one of them before any is
// marked.
type Suspect struct {
	Chunk  int64        `json:"chunk"` // Assign.ID
	Record chunk.Chunk  `json:"record"`
	Failed int64        `json:"failed"` // records of the part that have failed in the kernel so far
	Fault  *fault.Error `json:"fault"`
}

// Holding reports that the kernel can try no record for now, or that it can again.
type Holding struct {
	// Why is the kernel's message, empty when it is over.
	Why string `json:"why,omitempty"`
}

// Warned has what the kernel has to report before its next Done, which may be far away.
type Warned struct {
	Warnings []string `json:"warnings"`
}

// ReadComplete means that the worker has read all of a chunk, or all that it will compute of it.
// The orchestrator may assign another one before this one is Done, so that the device does
// not sit idle. Of a batch kernel, messages about the next chunk follow Done, except for another
// ReadComplete. A concurrent kernel may get any number of chunks, which end in any order.
type ReadComplete struct {
	Chunk int64 `json:"chunk"` // Assign.ID
}

// Remainder is the response to Stop from a worker with batches in flight: the remainder that it
// will not compute, so that others can start on it at once. Done then omits it. Without
// records, it means that there is nothing to share.
type Remainder struct {
	Chunk int64       `json:"chunk"` // Assign.ID
	Rest  chunk.Chunk `json:"rest"`
	// InFlight is how many records its kernel is still computing.
	InFlight int64 `json:"in_flight"`
}

// Spent means that the worker may not send another record, and has no record at its kernel.
type Spent struct {
	// Blind: there is a limit of tokens, and no answer reports any.
	Blind bool `json:"blind,omitempty"`
}

// Done means that a chunk, or its beginning up to Rest, is computed and its part closed.
type Done struct {
	Chunk   int64         `json:"chunk"` // Assign.ID
	Segment chunk.Segment `json:"segment"`
	// Rest is the remainder that was neither computed nor sent in Remainder; nil if none.
	Rest *chunk.Chunk `json:"rest,omitempty"`
	// Continues: the worker continues with Rest, under the same ID, after a checkpoint.
	Continues bool  `json:"continues,omitempty"`
	Stats     Stats `json:"stats"`
	// Computed and Batches are as in Progress.
	Computed int64 `json:"computed,omitempty"`
	Batches  int64 `json:"batches"`
	// Elsewhere is a record before Rest that needs another device.
	Elsewhere *chunk.Chunk `json:"elsewhere,omitempty"`
	// Crowded: the chunk ended before a batch that did not fit in memory; see Sharing.
	Crowded bool `json:"crowded,omitempty"`
	// Sources are the user's files loaded since the last message that listed some. The
	// segment must not be used if one of them has changed.
	Sources []Source `json:"sources,omitempty"`
	// Warnings are what the kernel has to report since the last Done.
	Warnings []string `json:"warnings,omitempty"`
}

// Stats are the statistics of a chunk.
type Stats struct {
	Batches int64         `json:"batches"`
	Busy    time.Duration `json:"busy"` // time in which the kernel had work
	// Input and Output are the times in which the kernel had none because no batch was
	// read yet, or because results were not written yet.
	Input    time.Duration `json:"input,omitempty"`
	Output   time.Duration `json:"output,omitempty"`
	Restarts int64         `json:"restarts,omitempty"`
	Retries  int64         `json:"retries,omitempty"` // batches run again, whole or in parts
	Faulty   int64         `json:"faulty,omitempty"`  // records that failed in the kernel
	Nulls    int64         `json:"nulls,omitempty"`   // numbers that JSON cannot represent
	// BatchSize is the fastest batch size found, 0 if none was.
	BatchSize int `json:"batch_size,omitempty"`
	// Cost is what the grouped records cost, Padded the same including padding; 0 if
	// records are not grouped.
	Cost   int64 `json:"cost,omitempty"`
	Padded int64 `json:"padded,omitempty"`
	// Latency is the latency of the batches since the last Progress.
	Latency *histogram.Histogram `json:"latency,omitempty"`
	// Figures are further counts by name, such as fetched files; they appear in metrics.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Failed means that the worker cannot continue with its kernel, its device or its chunk.
// It has removed the part.
type Failed struct {
	Fault *fault.Error `json:"fault"`
	// Sources are as in Done: a changed one may be the cause.
	Sources []Source `json:"sources,omitempty"`
}
