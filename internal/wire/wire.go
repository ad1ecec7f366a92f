// Package wire is the messages between an orchestrator and its workers.
//
// Both hold one end of a socket pair, the worker as descriptor 3. A message is
// four bytes of length and a JSON value; there are descriptions only, never
// records: "records a to b are these bytes of that file", "done so far", "stop
// at the next batch border".
//
//	orchestrator                          worker
//	  Setup ─────────────────────────────►  start the kernel
//	  ◄───────────────────────── Ready (or Failed)
//	  Assign ────────────────────────────►  compute a chunk
//	  ◄──────────────── Progress, Progress, …
//	  ◄──────────────── Near, when all of it is read
//	  Assign ────────────────────────────►  begin the next behind it, if there is one
//	  ◄──────────────── Done {segment, rest} (or Failed)
//	  Stop ──────────────────────────────►  end it at the next batch border
//	  ◄──────────────── Left {rest}, if batches are in flight, then Done
//	  End ───────────────────────────────►  close the kernel, exit
//	  (end of the connection) ───────────►  kill everything, exit
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Descriptor is where a worker finds its end of the connection. GuardDescriptor is where
// its guard finds a connection of its own: it sends the worker's pid there, and its end
// is that of the orchestrator.
const (
	Descriptor      = 3
	GuardDescriptor = 4
)

// The arguments by which a program knows that it was started as a worker, as the guard
// of one or as a built-in kernel, instead of by a person.
const (
	GuardArgument  = "gpurun-guard"
	WorkerArgument = "gpurun-worker"
	KernelArgument = "gpurun-kernel"
)

// MarkVariable is an environment variable of a worker and so of everything it
// starts; its value is a mark of proc.NewMark's, so that what a killed worker left can be
// found, by its orchestrator or, if that was killed too, by the next.
const MarkVariable = "GPURUN_WORKER_MARK"

// Message is one message: exactly one member is set.
type Message struct {
	// To the worker.
	Setup  *Setup  `json:"setup,omitempty"`
	Assign *Assign `json:"assign,omitempty"`
	Stop   *Stop   `json:"stop,omitempty"`
	Scarce *Scarce `json:"scarce,omitempty"`
	Pace   *Pace   `json:"pace,omitempty"`
	Trim   *Trim   `json:"trim,omitempty"`
	End    *End    `json:"end,omitempty"`

	// To the orchestrator.
	Ready    *Ready    `json:"ready,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Search   *Search   `json:"search,omitempty"`
	Near     *Near     `json:"near,omitempty"`
	Back     *Back     `json:"back,omitempty"`
	Left     *Left     `json:"left,omitempty"`
	Done     *Done     `json:"done,omitempty"`
	Failed   *Failed   `json:"failed,omitempty"`
	Trimmed  *Trimmed  `json:"trimmed,omitempty"`
	Alive    *Alive    `json:"alive,omitempty"`
}

// Setup is the first message: what the worker is for.
type Setup struct {
	// KillWait is how long a killed process may take to end; see proc.KillWait.
	KillWait time.Duration `json:"kill_wait"`
	// DescribeOnly: start the kernel without a device, ask it, answer Ready, end.
	DescribeOnly bool   `json:"describe_only,omitempty"`
	Kernel       string `json:"kernel"`
	KernelConfig []byte `json:"kernel_config,omitempty"`
	ExecMode     string `json:"exec_mode,omitempty"`
	ExecID       string `json:"exec_id,omitempty"`
	Python       Python `json:"python"`
	// Dir is the user's working folder.
	Dir string `json:"dir"`
	// PluginPath takes the place of $GPURUN_PLUGIN_PATH; empty leaves it.
	PluginPath string `json:"plugin_path,omitempty"`
	// SocketDir is this worker's own, for the kernel's socket.
	SocketDir   string        `json:"socket_dir"`
	Device      Device        `json:"device"`
	OpenTimeout time.Duration `json:"open_timeout"`
	Timeout     time.Duration `json:"timeout"`
	// LeastTimeout: the limit of a batch follows from those that were good. It is at
	// least this, and at least Timeout as long as few are known. 0 if the user has set
	// Timeout, which is the limit then.
	LeastTimeout time.Duration `json:"least_timeout,omitempty"`
	LogLevel     string        `json:"log_level,omitempty"`
	Records      Records       `json:"records"`
	// Proven begins with a record that an earlier run or worker has computed: a kernel
	// that fails on it now fails on everything. Nil if there is none.
	Proven *chunk.Chunk `json:"proven,omitempty"`
}

// Python is for kernels that are files of Python; plugins.PythonOptions explains
// the members.
type Python struct {
	Interpreter string `json:"interpreter,omitempty"`
	IOWorkers   int    `json:"io_workers,omitempty"`
	NaN         string `json:"nan,omitempty"`
}

// Records is how records are treated.
type Records struct {
	BatchSize   int      `json:"batch_size"`
	AutoBatch   bool     `json:"auto_batch,omitempty"` // BatchSize is where to begin
	BatchBytes  int      `json:"batch_bytes"`
	MaxBytes    int64    `json:"max_bytes"`
	Keep        []string `json:"keep,omitempty"`
	Reprocess   bool     `json:"reprocess,omitempty"`
	NoValidate  bool     `json:"no_validate,omitempty"`
	ErrorsApart bool     `json:"errors_apart,omitempty"`
	Framed      bool     `json:"framed,omitempty"`
	Step        string   `json:"step"`
	// NaNFails: NaN and infinity fail their record instead of becoming null.
	NaNFails bool `json:"nan_fails,omitempty"`
}

// Device is what a kernel is told of where it runs.
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
	Chunk chunk.Chunk `json:"chunk"`
	// Part is what the names of its result files begin with.
	Part string `json:"part"`
	// Spare is a file beside them that the results may be written over; the worker's
	// from now on.
	Spare string `json:"spare,omitempty"`
	// Final: no other device is left to try, so a record that does not fit this
	// one's memory is marked instead of handed back.
	Final bool `json:"final,omitempty"`
	// Blame: the chunk has failed on several devices in a way that reads like a lost one.
	// Unless a good record fails alike, that is its records' fault.
	Blame bool `json:"blame,omitempty"`
}

// Stop asks the worker to end its chunk, and one that it has begun behind it, at the next
// batch border.
type Stop struct {
	// Only is the first record of the one chunk that is meant.
	Only *int64 `json:"only,omitempty"`
	// Job: the whole job stops. A search for bad records, which may take as many
	// restarts of the kernel as there are records, ends then too.
	Job bool `json:"job,omitempty"`
	// Drain is how long the batches in flight may take when the job stops. The worker
	// abandons those that take longer; they are not computed. 0: as long as always.
	Drain time.Duration `json:"drain,omitempty"`
}

// Scarce says that the job comes to its end: from now on no batch should wait at
// the kernel that somebody else could compute.
type Scarce struct{}

// Pace says how fast the worker may compute from now on.
type Pace struct {
	// Share is that of the time in which it may: 1 is all of it, 0 pauses it at the
	// next batch border.
	Share float64 `json:"share"`
	// HandBack is how long a pause may last before the rest of the chunk is given
	// back, as by Stop.
	HandBack time.Duration `json:"hand_back"`
}

// Trim asks the worker to let its kernel give back device memory that it keeps and
// does not need, at the next batch border or at once if it computes nothing.
type Trim struct{}

// Trimmed answers Trim, whatever else is being sent.
type Trimmed struct {
	// Fault says why there is no memory back; nil: the kernel has done what it can.
	Fault *fault.Error `json:"fault,omitempty"`
}

// End says that no chunk follows: close the kernel and exit.
type End struct{}

// Ready says that the kernel is open, or described.
type Ready struct {
	Info Info `json:"info"`
	// Files are the kernel's own: what its results depend on.
	Files []string `json:"files,omitempty"`
	// Interpreter is the absolute path of the Python that runs them, empty if none does.
	Interpreter string `json:"interpreter,omitempty"`
	// Sources are what the open kernel has loaded of the user's files.
	Sources []Source `json:"sources,omitempty"`
}

// Source is a file of code that results depend on, as a kernel process has loaded it;
// plugins.Source explains the members. Sum is empty for one that cannot be read any
// more. Each is sent once in a worker's life, before or with the first results that
// depend on it.
type Source struct {
	Path string `json:"path"`
	Sum  string `json:"sum,omitempty"`
}

// Info is what a kernel says of itself; plugins.Info explains the members.
type Info struct {
	Name       string   `json:"name,omitempty"`
	Version    string   `json:"version,omitempty"`
	BatchSize  int      `json:"batch_size,omitempty"`
	InFlight   int      `json:"in_flight,omitempty"`
	NeedsGPU   bool     `json:"needs_gpu,omitempty"`
	Frameworks []string `json:"frameworks,omitempty"`
	MinMemory  uint64   `json:"min_memory,omitempty"`
	CanTrim    bool     `json:"can_trim,omitempty"`
	Inputs     []string `json:"inputs,omitempty"`
}

// Progress is how far the chunk is.
type Progress struct {
	Counts chunk.Counts `json:"counts"`
	// First is set once in a worker's life: how its first batch went.
	First *FirstBatch `json:"first,omitempty"`
	// Memory is what the kernel's framework holds, if the kernel tells.
	Memory *FrameworkMemory `json:"memory,omitempty"`
}

// FrameworkMemory is what a framework holds of the device's memory, in bytes; Cached
// includes Allocated.
type FrameworkMemory struct {
	Library   string `json:"library,omitempty"`
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
}

// FirstBatch tells a kernel that fails on everything from one that has met a bad
// record.
type FirstBatch struct {
	// Failed is what all records of the batch failed by, the same for each unless
	// Varied; nil if they did not all fail.
	Failed *fault.Error `json:"failed,omitempty"`
	// Records is how many did. It is reported again with later batches, as long as all
	// of their records fail too, up to VariedRecords.
	Records int `json:"records,omitempty"`
	// Varied: the messages differ, all by kinds that are the kernel's own doing.
	Varied bool `json:"varied,omitempty"`
	// Sampled: not all, but some from all over the batch, each of which has failed
	// alone. To try all of them takes long; how all of it went is told then.
	Sampled bool `json:"sampled,omitempty"`
	// Proven: one that an earlier run has computed has failed too.
	Proven bool `json:"proven,omitempty"`
}

// JudgedRecords is how many records must fail before a kernel is said to fail on
// everything: with batches of one, a single bad record would be enough otherwise.
const JudgedRecords = 16

// VariedRecords is the same where the messages differ from record to record.
const VariedRecords = 1000

// Search says that a batch failed as a whole, for the first time in the worker's life, and
// that the records are looked for that it failed by, which may take long.
type Search struct {
	Lost *fault.Error `json:"lost,omitempty"`
	// First is as in Progress: it is set if the search has shown already how the
	// first batch goes.
	First *FirstBatch `json:"first,omitempty"`
}

// Near says that the worker has read all of its chunk, or of what it will come to of
// it: another may be assigned before this one is Done, so that the device need not wait
// for it. Messages about that one follow Done, another Near excepted.
type Near struct{}

// Back gives back the chunk that was assigned behind the one at hand, untouched: the
// worker will not come to it soon.
type Back struct{}

// Left is the answer to Stop of a worker that still has batches in flight: what it
// will not come to, so that nobody has to wait for those. It is not in Done then.
type Left struct {
	Rest chunk.Chunk `json:"rest"`
	// InFlight is how many records it still has with its kernel.
	InFlight int64 `json:"in_flight"`
}

// Done says that the chunk, or its beginning up to Rest, is computed and its
// part closed.
type Done struct {
	Segment chunk.Segment `json:"segment"`
	// Rest is what was not computed and not Left: nil for nothing.
	Rest  *chunk.Chunk `json:"rest,omitempty"`
	Stats Stats        `json:"stats"`
	// Elsewhere is a record before the rest, for another device.
	Elsewhere *chunk.Chunk `json:"elsewhere,omitempty"`
	// First is as in Progress, for a chunk that was faster than that.
	First *FirstBatch `json:"first,omitempty"`
	// Sources are what was loaded of the user's files since the last message with some:
	// the segment must not be used if one of them has changed.
	Sources []Source `json:"sources,omitempty"`
	// Warnings are what the kernel has to report since the last Done.
	Warnings []string `json:"warnings,omitempty"`
}

// Stats is what a chunk cost.
type Stats struct {
	Batches  int64         `json:"batches"`
	Busy     time.Duration `json:"busy"` // the kernel had something to compute
	Restarts int64         `json:"restarts,omitempty"`
	Retries  int64         `json:"retries,omitempty"` // batches run again, whole or in parts
	Nulls    int64         `json:"nulls,omitempty"`   // numbers that JSON does not have
	// BatchSize is the one that was found to be the best, 0 if none was.
	BatchSize int `json:"batch_size,omitempty"`
}

// Failed says that the worker cannot go on with its kernel, its device or its
// chunk. The part is gone.
type Failed struct {
	Fault *fault.Error `json:"fault"`
	// Sources are as in Done: one that has changed may be the reason.
	Sources []Source `json:"sources,omitempty"`
}

// Alive is sent when there is nothing else to say.
type Alive struct{}

// SendPID tells the orchestrator which process the worker is.
func SendPID(w io.Writer, pid int) error {
	return binary.Write(w, binary.LittleEndian, int64(pid))
}

// ReceivePID reads what SendPID wrote.
func ReceivePID(r io.Reader) (int, error) {
	var pid int64
	err := binary.Read(r, binary.LittleEndian, &pid)
	return int(pid), err
}

// maxMessage bounds a message: there are descriptions only.
const maxMessage = 16 << 20

// Conn sends and receives messages. Send is safe for concurrent use, Receive is
// for one goroutine.
type Conn struct {
	rw io.ReadWriter
	mu sync.Mutex
	// broken is the first failed write: part of a frame may be out, and nothing
	// that follows would be read as a message.
	broken error
}

// NewConn uses a connection, which stays the caller's to close.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{rw: rw} }

// Send writes one message.
func (c *Conn) Send(m Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxMessage {
		return fmt.Errorf("message of %d bytes is over the limit of %d", len(body), maxMessage)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.LittleEndian.PutUint32(frame, uint32(len(body)))
	frame = append(frame, body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		_, c.broken = c.rw.Write(frame)
	}
	return c.broken
}

// Receive reads one message; io.EOF means that the other side is gone,
// io.ErrUnexpectedEOF that it went in the middle of one.
func (c *Conn) Receive() (Message, error) {
	var m Message
	var head [4]byte
	if _, err := io.ReadFull(c.rw, head[:]); err != nil {
		return m, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxMessage {
		return m, fmt.Errorf("message of %d bytes is over the limit of %d", size, maxMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.rw, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return m, err
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}
