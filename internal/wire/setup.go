package wire

import (
	"errors"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernel"
)

// Setup is the first message: it configures the worker.
type Setup struct {
	// KillWait is how long a killed process may take to exit; see proc.KillWait.
	KillWait time.Duration `json:"kill_wait"`
	// DescribeOnly: start the kernel without a device, describe it in Ready, and exit.
	DescribeOnly bool `json:"describe_only,omitempty"`
	// GiveUp: start no kernel. Write the answers that a concurrent kernel has given for the
	// records of the assigned chunk, and fail the others with this.
	GiveUp       *fault.Error `json:"give_up,omitempty"`
	Kernel       string       `json:"kernel"`
	KernelConfig []byte       `json:"kernel_config,omitempty"`
	ExecMode     string       `json:"exec_mode,omitempty"`
	ExecID       string       `json:"exec_id,omitempty"`
	Python       Python       `json:"python"`
	// Dir is the user's working folder.
	Dir string `json:"dir"`
	// PluginPath replaces $GPURUN_PLUGIN_PATH unless empty.
	PluginPath string `json:"plugin_path,omitempty"`
	// SocketDir is this worker's private folder for the kernel's socket.
	SocketDir string `json:"socket_dir"`
	// Templates is the socket of the guard that forks interpreters; empty if they start fresh.
	Templates string `json:"templates,omitempty"`
	// KeepWarm is how long the templates of that guard outlive jobs; 0 if they do not.
	KeepWarm    time.Duration `json:"keep_warm,omitempty"`
	Device      kernel.Device `json:"device"`
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
	// Asked: the job has sent requests before, in this run or an earlier one.
	Asked bool `json:"asked,omitempty"`
	// Spend limits what the job may use.
	Spend    Spend   `json:"spend,omitzero"`
	LogLevel string  `json:"log_level,omitempty"`
	Records  Records `json:"records"`
	Fetch    Fetch   `json:"fetch,omitzero"`
	// Layout describes the columns, if it is known.
	Layout *columns.Layout `json:"layout,omitempty"`
	// Programs are the kernel's files as the orchestrator has read them, so that each
	// worker need not read them again.
	Programs []Program `json:"programs,omitempty"`
	// Alone is a file with which the workers of a GPU keep apart if a fault of one ends all of
	// them; empty without CUDA's multi-process service.
	Alone string `json:"alone,omitempty"`
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

// Python configures Python kernels; see resolve.PythonOptions.
type Python struct {
	Interpreter string `json:"interpreter,omitempty"`
	IOWorkers   int    `json:"io_workers,omitempty"`
	NaN         string `json:"nan,omitempty"`
}

// Records configures how records are processed.
type Records struct {
	BatchSize   int      `json:"batch_size"`
	AutoBatch   bool     `json:"auto_batch,omitempty"` // BatchSize is the initial size
	GrowBatch   bool     `json:"grow_batch,omitempty"` // the same; see plugins.Info
	BatchBytes  int      `json:"batch_bytes"`
	GroupBy     string   `json:"group_by,omitempty"`   // a member; empty: batches in input order
	BatchCost   int64    `json:"batch_cost,omitempty"` // the most that a batch may cost; 0: no limit
	MaxBytes    int64    `json:"max_bytes"`
	Keep        []string `json:"keep,omitempty"`
	SourceField string   `json:"source_field,omitempty"` // a member for where a record comes from
	Reprocess   bool     `json:"reprocess,omitempty"`
	NoValidate  bool     `json:"no_validate,omitempty"`
	// Store and ErrorsApart are as in commit.PartOptions.
	Store       chunk.Store `json:"store,omitempty"`
	ErrorsApart bool        `json:"errors_apart,omitempty"`
	// Batch: results have the form of lines in OpenAI's batch files.
	Batch bool   `json:"batch,omitempty"`
	Step  string `json:"step"`
	// NaNFails: NaN and infinity fail their record instead of becoming null.
	NaNFails bool `json:"nan_fails,omitempty"`
	// Bytes are the names of the values that records have beside their lines; see Chunk.Blobs.
	// BytesRead are those that the kernel gets, like fetched files.
	Bytes     []string `json:"bytes,omitempty"`
	BytesRead []string `json:"bytes_read,omitempty"`
	// Columns are stored as raw values; nil for none.
	Columns *columns.Spec `json:"columns,omitempty"`
}

// Fetch is which files workers fetch for the records, ahead of the kernel; by default
// none. docs/fetch.md describes what a record may name, and what is refused.
type Fetch struct {
	// Members are the members that name files, and the names under which the kernel gets
	// those files.
	Members []FetchMember `json:"members,omitempty"`
	// Root is the folder that paths in records are relative to and must not leave; default
	// the folder of the input files, or Dir for a stream. If the inputs are in different
	// folders, there is none, and paths fail their records.
	Root string `json:"root,omitempty"`
	// MaxBytes is the most that a file may have, after decompression; default 64 MiB. A larger one
	// fails its record.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Concurrency is how many files each worker fetches at a time, default 64; PerHost is
	// how many of them from one host, default 32.
	Concurrency int `json:"concurrency,omitempty"`
	PerHost     int `json:"per_host,omitempty"`
	// Timeout is how long a file may take, with retries; default 1m. Time in which a fetch waits for
	// room in memory does not count.
	Timeout time.Duration `json:"timeout,omitzero"`
	// Retries is how often a fetch is retried after a failure that may pass; default 4,
	// negative for never.
	Retries int `json:"retries,omitempty"`
	// AllowPrivate permits URLs of addresses that are not public, and a proxy that the environment
	// names. By default they are refused, because records could otherwise make a worker read what only
	// its host can reach; a proxy resolves names itself, so that its addresses cannot be checked.
	AllowPrivate bool `json:"allow_private,omitempty"`
}

// FetchMember is a member of the records, Field, that names a file. The kernel gets the
// file as Name.
type FetchMember struct {
	Name  string `json:"name"`
	Field string `json:"field"`
}

// Set parses NAME=FIELD.
func (m *FetchMember) Set(text string) error {
	name, field, found := strings.Cut(text, "=")
	if !found || name == "" || field == "" {
		return errors.New("must be NAME=FIELD, for example image=url")
	}
	m.Name, m.Field = name, field
	return nil
}

// WindowBatches is how many batches of records a worker groups at a time, at most. With
// that many, batches of texts of 3 to 250 words cost 1.1 times as much as if all were sorted
// at once.
const WindowBatches = 16
