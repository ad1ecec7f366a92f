// Package wire defines the messages between an orchestrator and its workers.
//
// Each side holds one end of a socket pair, the worker as descriptor 3. A message is a
// four-byte length and a JSON value. Messages only describe records and never contain
// them: "records a to b are these bytes of that file", "done so far", "stop after the
// current batch".
//
//	orchestrator                          worker
//	  Setup ─────────────────────────────►  start the kernel
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
	"encoding/binary"
	"io"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/frame"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/judge"
)

// Descriptor is the worker's end of the connection. GuardDescriptor is its guard's own
// connection: the guard sends the worker's pid over it, and knows by its end that the
// orchestrator has exited.
const (
	Descriptor      = 3
	GuardDescriptor = 4
)

// The arguments that start this program as a worker, as the guard of one, or as a built-in
// kernel.
const (
	GuardArgument  = "gpurun-guard"
	WorkerArgument = "gpurun-worker"
	KernelArgument = "gpurun-kernel"
)

// MarkVariable is an environment variable that a worker passes to everything it starts.
// Its value comes from proc.NewMark and lets the orchestrator, or the next one if it was
// killed too, find the processes of a killed worker.
const MarkVariable = "GPURUN_WORKER_MARK"

// Message is one message: exactly one member is set.
type Message struct {
	// To the worker.
	Setup    *Setup    `json:"setup,omitempty"`
	Assign   *Assign   `json:"assign,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	Draining *Draining `json:"draining,omitempty"`
	Pace     *Pace     `json:"pace,omitempty"`
	Sharing  *Sharing  `json:"sharing,omitempty"`
	Trim     *Trim     `json:"trim,omitempty"`
	Renew    *Renew    `json:"renew,omitempty"`
	End      *End      `json:"end,omitempty"`

	// In both directions.
	Layout *Layout `json:"layout,omitempty"`

	// To the orchestrator.
	Ready            *Ready            `json:"ready,omitempty"`
	Progress         *Progress         `json:"progress,omitempty"`
	Search           *Search           `json:"search,omitempty"`
	Holding          *Holding          `json:"holding,omitempty"`
	Warned           *Warned           `json:"warned,omitempty"`
	ReadComplete     *ReadComplete     `json:"read_complete,omitempty"`
	ReturnPrefetched *ReturnPrefetched `json:"return_prefetched,omitempty"`
	Remainder        *Remainder        `json:"remainder,omitempty"`
	Spent            *Spent            `json:"spent,omitempty"`
	Done             *Done             `json:"done,omitempty"`
	Failed           *Failed           `json:"failed,omitempty"`
	Trimmed          *Trimmed          `json:"trimmed,omitempty"`
	Alive            *Alive            `json:"alive,omitempty"`
}

// Setup is the first message: it configures the worker.
type Setup struct {
	// KillWait is how long a killed process may take to exit; see proc.KillWait.
	KillWait time.Duration `json:"kill_wait"`
	// DescribeOnly: start the kernel without a device, describe it in Ready, and exit.
	DescribeOnly bool   `json:"describe_only,omitempty"`
	Kernel       string `json:"kernel"`
	KernelConfig []byte `json:"kernel_config,omitempty"`
	ExecMode     string `json:"exec_mode,omitempty"`
	ExecID       string `json:"exec_id,omitempty"`
	Python       Python `json:"python"`
	// Dir is the user's working folder.
	Dir string `json:"dir"`
	// PluginPath replaces $GPURUN_PLUGIN_PATH unless empty.
	PluginPath string `json:"plugin_path,omitempty"`
	// SocketDir is this worker's private folder for the kernel's socket.
	SocketDir   string        `json:"socket_dir"`
	Device      Device        `json:"device"`
	OpenTimeout time.Duration `json:"open_timeout"`
	Timeout     time.Duration `json:"timeout"`
	// Checkpoint is how much work a power loss may cost: a concurrent kernel's answers are
	// made durable that often.
	Checkpoint time.Duration `json:"checkpoint,omitempty"`
	// LeastTimeout is the minimum time limit of a batch, which is derived from earlier
	// successful batches. Until enough are known, Timeout is the minimum. 0 if the user
	// has set Timeout, which then is the limit.
	LeastTimeout time.Duration `json:"least_timeout,omitempty"`
	// Retries is how many further attempts a record gets if its kernel asks for them.
	Retries int `json:"retries,omitempty"`
	// Figures is the file in which the workers of the job count together; see package
	// figures. Empty if the kernel computes batches.
	Figures string `json:"figures,omitempty"`
	// Spend limits what the job may use.
	Spend    Spend   `json:"spend,omitzero"`
	LogLevel string  `json:"log_level,omitempty"`
	Records  Records `json:"records"`
	Fetch    Fetch   `json:"fetch,omitzero"`
	// Layout is that of the columns, if it is known.
	Layout *columns.Layout `json:"layout,omitempty"`
	// Programs are the kernel's files as the orchestrator has read them, so that each
	// worker need not read them again.
	Programs []Program `json:"programs,omitempty"`
	// Proven starts with a record that succeeded in an earlier run or worker: a kernel
	// that fails on it now fails on everything. Nil if there is none.
	Proven *chunk.Chunk `json:"proven,omitempty"`
}

// Spend limits the requests and the tokens of a job, all workers and runs together; 0 for no
// limit.
type Spend struct {
	Requests int64 `json:"requests,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
}

// Program is a file with its sum, and the state in which it was read; see filesum.State.
type Program struct {
	Path  string `json:"path"`
	State string `json:"state"`
	Sum   string `json:"sum"`
}

// Python configures Python kernels; see plugins.PythonOptions.
type Python struct {
	Interpreter string `json:"interpreter,omitempty"`
	IOWorkers   int    `json:"io_workers,omitempty"`
	NaN         string `json:"nan,omitempty"`
}

// Records configures how records are processed.
type Records struct {
	BatchSize   int      `json:"batch_size"`
	AutoBatch   bool     `json:"auto_batch,omitempty"` // BatchSize is the initial size
	BatchBytes  int      `json:"batch_bytes"`
	GroupBy     string   `json:"group_by,omitempty"`   // a member; empty: batches in input order
	BatchCost   int64    `json:"batch_cost,omitempty"` // the most that a batch may cost; 0: no limit
	MaxBytes    int64    `json:"max_bytes"`
	Keep        []string `json:"keep,omitempty"`
	SourceField string   `json:"source_field,omitempty"` // a member for where a record comes from
	Reprocess   bool     `json:"reprocess,omitempty"`
	NoValidate  bool     `json:"no_validate,omitempty"`
	ErrorsApart bool     `json:"errors_apart,omitempty"`
	Framed      bool     `json:"framed,omitempty"`
	// FrameFailures: see commit.PartOptions.
	FrameFailures bool `json:"frame_failures,omitempty"`
	// Batch: see commit.PartOptions.
	Batch bool   `json:"batch,omitempty"`
	Step  string `json:"step"`
	// NaNFails: NaN and infinity fail their record instead of becoming null.
	NaNFails bool `json:"nan_fails,omitempty"`
	// Columns are stored as raw values; nil for none.
	Columns *columns.Spec `json:"columns,omitempty"`
}

// Layout is what the rows of a job with columns look like. A worker proposes one, with its
// first successful batch, and waits for the orchestrator's answer: the layout of the job,
// which the first proposal has fixed.
type Layout struct {
	Layout columns.Layout `json:"layout"`
}

// Fetch configures the files that the worker fetches for records; see fetch.Options. It
// fetches none without members.
type Fetch struct {
	Members      []FetchMember `json:"members,omitempty"`
	Root         string        `json:"root,omitempty"`
	MaxBytes     int64         `json:"max_bytes,omitempty"`
	Concurrency  int           `json:"concurrency,omitempty"`
	PerHost      int           `json:"per_host,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"`
	Retries      int           `json:"retries,omitempty"` // negative for none
	AllowPrivate bool          `json:"allow_private,omitempty"`
}

// FetchMember is a member of the records, Field, that names a file, and the name under
// which the kernel gets that file.
type FetchMember struct {
	Name  string `json:"name"`
	Field string `json:"field"`
}

// WindowBatches is how many batches of records a worker groups at a time, at most. With
// that many, batches of texts of 3 to 250 words cost 1.1 times as much as if all were sorted
// at once.
const WindowBatches = 16

// Device describes the device to the kernel.
type Device struct {
	Name    string `json:"name"`
	Index   int    `json:"index"`
	UUID    string `json:"uuid,omitempty"`
	Memory  uint64 `json:"memory,omitempty"`
	Count   int    `json:"count"`
	GPU     bool   `json:"gpu"`
	Threads int    `json:"threads"`
}

// Assign gives the worker a chunk.
type Assign struct {
	// ID is what messages about the chunk name it by.
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
	// Only limits the request to the chunk that starts with this record.
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

// Draining means that the job comes to its end: from now on, the worker should not queue batches
// at its kernel that another worker could compute.
type Draining struct{}

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

// Trim asks the worker's kernel to release unused device memory after the current batch,
// or immediately if it is idle.
type Trim struct{}

// Trimmed is the response to Trim. It may arrive between any other messages.
type Trimmed struct {
	// Fault explains why no memory was released; nil on success.
	Fault *fault.Error `json:"fault,omitempty"`
}

// Renew means that the job is done, and chunks of another one follow: what was said about
// the pace, about sharing memory and about the job's end no longer holds.
type Renew struct {
	// Figures is as in Setup.
	Figures string `json:"figures,omitempty"`
}

// End means that no chunk follows: close the kernel and exit.
type End struct{}

// Ready means that the kernel is open, or described.
type Ready struct {
	Info Info `json:"info"`
	// Files are the kernel's files, which its results depend on.
	Files []string `json:"files,omitempty"`
	// Interpreter is the absolute path of the Python interpreter, empty if none is used.
	Interpreter string `json:"interpreter,omitempty"`
	// Sources are the user's files that the open kernel has loaded.
	Sources []Source `json:"sources,omitempty"`
}

// Source is a code file that results depend on, as the kernel process loaded it; see
// plugins.Source. Sum is empty if the file is no longer readable. A worker sends each
// source once, before or with the first results that depend on it.
type Source struct {
	Path string `json:"path"`
	Sum  string `json:"sum,omitempty"`
}

// Info is the kernel's description of itself; see plugins.Info.
type Info struct {
	Name       string   `json:"name,omitempty"`
	Version    string   `json:"version,omitempty"`
	BatchSize  int      `json:"batch_size,omitempty"`
	InFlight   int      `json:"in_flight,omitempty"`
	Ahead      int      `json:"ahead,omitempty"`
	NeedsGPU   bool     `json:"needs_gpu,omitempty"`
	NoDevice   bool     `json:"no_device,omitempty"`
	Frameworks []string `json:"frameworks,omitempty"`
	MinMemory  uint64   `json:"min_memory,omitempty"`
	CanTrim    bool     `json:"can_trim,omitempty"`
	Inputs     []string `json:"inputs,omitempty"`
	OnlyInputs bool     `json:"only_inputs,omitempty"`
	// NeedsInputs: a record without one of Inputs always fails.
	NeedsInputs bool   `json:"needs_inputs,omitempty"`
	MaxWorkers  int    `json:"max_workers,omitempty"`
	GroupBy     string `json:"group_by,omitempty"`
	// Concurrency is how many records it computes at a time, 0 if it computes batches.
	Concurrency int `json:"concurrency,omitempty"`
	// ReadsFetched: the kernel reads the files that are fetched for records.
	ReadsFetched bool `json:"reads_fetched,omitempty"`
}

// Progress reports the progress on a chunk.
type Progress struct {
	Chunk  int64        `json:"chunk"` // Assign.ID
	Counts chunk.Counts `json:"counts"`
	// Ahead is how many further records are computed, but not yet written because records
	// before them are not: those of a window of grouped records.
	Ahead int64 `json:"ahead,omitempty"`
	// First is set once in a worker's life: the outcome of its first batch.
	First *judge.First `json:"first,omitempty"`
	// Busy is how long the worker's kernel has had work since it was ready. Tuning means
	// that the worker is still searching for the fastest batch size.
	Busy   time.Duration `json:"busy"`
	Tuning bool          `json:"tuning,omitempty"`
	// Memory is the memory held by the kernel's framework, if the kernel reports it.
	Memory *FrameworkMemory `json:"memory,omitempty"`
	// Latency is that of the batches since the last message of this chunk.
	Latency *histogram.Histogram `json:"latency,omitempty"`
}

// FrameworkMemory is the device memory that a framework holds. It is the monitor's type;
// authors of kernels have plugins.FrameworkMemory, which does not bring the driver along.
type FrameworkMemory = gpu.FrameworkMemory

// Search reports that a whole batch failed, for the first time in the worker's life, and
// that the worker is bisecting it to isolate the bad records, which may take long.
type Search struct {
	Lost *fault.Error `json:"lost,omitempty"`
	// First is as in Progress; it is set if bisecting has already shown the outcome of
	// the first batch.
	First *judge.First `json:"first,omitempty"`
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

// ReturnPrefetched returns the prefetched chunk untouched: the worker will not reach it soon.
type ReturnPrefetched struct{}

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
	// Continues: the worker continues with Rest, under the same ID. A concurrent kernel does
	// not stop for a checkpoint.
	Continues bool  `json:"continues,omitempty"`
	Stats     Stats `json:"stats"`
	// Elsewhere is a record before Rest that needs another device.
	Elsewhere *chunk.Chunk `json:"elsewhere,omitempty"`
	// Crowded: the chunk ended before a batch that did not fit in memory; see Sharing.
	Crowded bool `json:"crowded,omitempty"`
	// First is as in Progress, for a chunk that finished before any Progress.
	First *judge.First `json:"first,omitempty"`
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
	Nulls    int64         `json:"nulls,omitempty"`   // numbers that JSON cannot represent
	// BatchSize is the fastest batch size found, 0 if none was.
	BatchSize int `json:"batch_size,omitempty"`
	// Cost is what the grouped records cost, Padded the same including padding; 0 if
	// records are not grouped.
	Cost   int64 `json:"cost,omitempty"`
	Padded int64 `json:"padded,omitempty"`
	// Latency is that of the batches since the last Progress.
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

// Alive is a heartbeat, sent when there is nothing else to send.
type Alive struct{}

// SendPID sends the worker's pid to the orchestrator.
func SendPID(w io.Writer, pid int) error {
	return binary.Write(w, binary.LittleEndian, int64(pid))
}

// ReceivePID receives the pid that SendPID sent.
func ReceivePID(r io.Reader) (int, error) {
	var pid int64
	err := binary.Read(r, binary.LittleEndian, &pid)
	return int(pid), err
}

// maxMessage limits the size of a message, which contains no records.
const maxMessage = 16 << 20

// Conn sends and receives messages. Send is safe for concurrent use; Receive must be
// called from one goroutine at a time.
type Conn struct{ frames *frame.Conn }

// NewConn returns a Conn on rw. The caller must close rw.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{frame.NewConn(rw, maxMessage)} }

// Send writes one message. After a failed write, all others fail too.
func (c *Conn) Send(m Message) error { return c.frames.Send(m) }

// Receive reads one message. io.EOF means that the peer closed the connection,
// io.ErrUnexpectedEOF that it did so in the middle of a message.
func (c *Conn) Receive() (m Message, err error) {
	err = c.frames.Receive(&m)
	return m, err
}
