package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonerr"
)

// Kernel computes batches of records. Authors implement it. The worker's proxy
// implements it too, under the same contract.
//
// Methods are called one at a time, from one goroutine: Describe any number of times,
// Open once, Process for each batch, then Close. After a failed Open, only Close is
// called.
type Kernel interface {
	// Describe returns what the kernel is and what it needs. gpurun also calls it when
	// planning a job, in a separate process without a device, so it must be cheap: it
	// must not use a device or import a framework. Describe must reject a configuration
	// that the kernel does not support.
	Describe(ctx context.Context, config Config) (Info, error)

	// Open prepares the kernel to compute batches on one device, for example by loading
	// a model. It may take up to --open-timeout. An error means that the kernel cannot
	// run on this device with this configuration, and stops the job. Only [DeviceLost]
	// and [OutOfMemory] retire just the device.
	Open(ctx context.Context, device Device, config Config) error

	// Process computes one batch and gives every record in it exactly one verdict in
	// results. Batches arrive in order, unless records are grouped (see Info.GroupBy).
	// After a failure, a record may arrive again, alone or with others.
	//
	// The memory of batch belongs to the caller and is valid until the results are
	// complete. Until then, the kernel must not change anything it has passed to results.
	// They are complete when Process returns, unless the kernel called [Results.Defer].
	//
	// A column with another number of values than the batch has records stops the job. An
	// error fails the whole batch and discards all of its verdicts; a kernel may instead
	// isolate the records that cause it, see [Batch.Isolation]. gpurun tries to classify an
	// error by its text if the kernel has not done so: see [Diagnose]. When ctx is done, the
	// caller no longer waits for the results.
	Process(ctx context.Context, batch Batch, results *Results) error

	// Close releases the resources that Open acquired. The process exits afterwards, so
	// a kernel without external resources has nothing to do here.
	Close() error
}

// Info describes a kernel. The zero value means no requirements and no preferences.
type Info struct {
	// Name is shown to users; empty means the name that the kernel was started with.
	Name string `json:"name,omitempty"`
	// Version is shown to users.
	Version string `json:"version,omitempty"`
	// BatchSize is the preferred number of records per batch. The user's setting takes
	// precedence; 0 means no preference.
	BatchSize int `json:"batch_size,omitempty"`
	// GrowBatch means that each batch has a cost of its own, such as the start of a program.
	// Unless the user or BatchSize sets a size, gpurun enlarges the batches until that cost is
	// less than a twentieth of the time that they take.
	GrowBatch bool `json:"grow_batch,omitempty"`
	// InFlight is how many batches the kernel accepts before it must complete the first
	// of them (see Results.Defer). 0 and 1 mean one at a time; the maximum is 64.
	InFlight int `json:"in_flight,omitempty"`
	// Ahead is how many batches beyond InFlight the kernel accepts, to prepare them while it
	// computes. They help where batches take unequally long to prepare. A stop has to wait
	// for them, so gpurun submits only as many as the kernel completes within about two
	// seconds. The maximum is 128.
	Ahead int `json:"ahead,omitempty"`
	// NeedsGPU means that the kernel cannot run on a CPU device.
	NeedsGPU bool `json:"needs_gpu,omitempty"`
	// NoDevice means that the kernel uses no device, because something else computes: a
	// server. The job then has one worker and leases nothing, whatever devices the user
	// selects.
	NoDevice bool `json:"no_device,omitempty"`
	// Frameworks lists the frameworks that the kernel imports ("torch"), for the plan.
	Frameworks []string `json:"frameworks,omitempty"`
	// MinMemory is the least device memory, in bytes, that Open needs to succeed.
	MinMemory uint64 `json:"min_memory,omitempty"`
	// CanTrim means that the kernel can release cached device memory (see Trimmer).
	CanTrim bool `json:"can_trim,omitempty"`
	// Inputs are the members of a record that the kernel reads (see Batch.Member), at
	// most 60. The worker locates them when it validates a line; the kernel still gets
	// the whole record.
	Inputs []string `json:"inputs,omitempty"`
	// OnlyInputs means that the kernel reads nothing else of a record. Columns of a table
	// that no other setting needs are then not read.
	OnlyInputs bool `json:"only_inputs,omitempty"`
	// NeedsInputs means that a record without one of the Inputs always fails. A job in whose
	// first records one of them is missing everywhere then stops before it starts.
	NeedsInputs bool `json:"needs_inputs,omitempty"`
	// MaxWorkers is how many workers may share a device at most, each with its own
	// kernel process. 1 makes the kernel exclusive: gpurun never adds a second worker.
	// 0 means no limit. A number of workers that the user sets takes precedence.
	MaxWorkers int `json:"max_workers,omitempty"`
	// GroupBy is a member of a record, for example "text". Batches then hold records of
	// similar size: by the length of a text or array, or by the value of a number. That
	// saves what a kernel computes on padding. The user's setting takes precedence; empty
	// means batches in input order. The output is in input order either way.
	GroupBy string `json:"group_by,omitempty"`
	// Concurrency is how many records the kernel computes at a time, each on its own; see
	// [Concurrent], which it must implement then. 0 means that it computes batches. It
	// does not combine with InFlight and GroupBy. Such a kernel is exclusive unless it
	// sets MaxWorkers.
	Concurrency int `json:"concurrency,omitempty"`
	// RecordTimeout is how long a kernel with a Concurrency lets a record take before it
	// gives it up itself, 0 if it does not. Unless the user sets a limit, gpurun then
	// waits at least [Info.RecordLimit].
	RecordTimeout time.Duration `json:"record_timeout,omitempty"`
	// ReadsFetched means that the kernel reads the files that the worker fetches for
	// records (see Batch.Fetched). A job that fetches files refuses any other kernel.
	ReadsFetched bool `json:"reads_fetched,omitempty"`
}

// RecordLimit returns how long a record may take at a kernel with a RecordTimeout, its wait for
// its turn included. It is 0 for other kernels.
func (i Info) RecordLimit() time.Duration {
	if i.RecordTimeout > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * i.RecordTimeout
}

// maxInputs is the most that one scan can look for, less what the worker itself needs.
const maxInputs = 60

// Device is where a kernel runs. It is the only device that the process sees, and thus
// number 0 to every framework, whatever its Index in the machine.
type Device struct {
	// Name is the label in progress bars and logs: "GPU 3", "CPU 0".
	Name string `json:"name"`
	// Index is the device's number in the machine, for display only.
	Index int `json:"index"`
	// UUID is empty if unknown.
	UUID string `json:"uuid,omitempty"`
	// Memory is the size of the device memory in bytes; 0 if unknown.
	Memory uint64 `json:"memory,omitempty"`
	// Count is how many GPUs the process sees (--gpus-per-worker); 0 on a CPU.
	Count int `json:"count"`
	// GPU is false on a CPU device.
	GPU bool `json:"gpu"`
	// Threads is this worker's share of the CPU cores, at least 1.
	Threads int `json:"threads"`
}

// Config is the JSON value that the user passed with --kernel-config; empty if none.
type Config []byte

// Decode reads the configuration into v, a pointer to a struct. An unknown member is an
// error, so that a mistyped option is not silently ignored. Without a configuration
// Decode leaves v unchanged: set the defaults before the call.
func (c Config) Decode(v any) error {
	if len(bytes.TrimSpace(c)) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(c))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fault.New(fault.Incompatible, "kernel configuration: %s", jsonerr.Explain(err, v, "settings"))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Incompatible, "kernel configuration: unexpected data after the first JSON value")
	}
	return nil
}

// Base provides empty Describe, Open and Close methods: embed it and implement only
// Process.
type Base struct{}

// Describe returns the zero Info.
func (Base) Describe(context.Context, Config) (Info, error) { return Info{}, nil }

// Open does nothing.
func (Base) Open(context.Context, Device, Config) error { return nil }

// Close does nothing.
func (Base) Close() error { return nil }

// OutOfMemory marks err as caused by a lack of device memory. gpurun then makes the batch
// smaller. It returns nil if err is nil.
func OutOfMemory(err error) error { return reclassify(fault.OOM, err) }

// DeviceLost marks err as caused by a device that no longer works. gpurun then retires the
// device and sends the records to another. It returns nil if err is nil.
func DeviceLost(err error) error { return reclassify(fault.Device, err) }

// Stop marks err as a reason to stop the job, which can be resumed later. It returns nil if
// err is nil.
func Stop(err error) error { return reclassify(fault.Stopped, err) }

// Detail attaches diagnostic information to err, such as a traceback. It goes to the log
// and to failures.jsonl, but not into the output. It returns nil if err is nil.
func Detail(err error, detail string) error {
	if err == nil {
		return nil
	}
	// An unclassified error stays unclassified: its kind depends on the method that
	// returns it and on the text of err and detail.
	return fault.New(fault.KindOf(err), "%w", err).WithDetail(detail)
}

func reclassify(kind fault.Kind, err error) error {
	if err == nil {
		return nil
	}
	e := fault.New(kind, "%w", err)
	if inner := fault.As(err); inner != nil {
		e.Detail = inner.Detail
	}
	return e
}

// Batch is a sequence of records in input order. A record is the bytes of one line
// without its line ending: a valid JSON value, not necessarily an object. (With
// --no-validate the user guarantees that it is valid.)
type Batch struct {
	records [][]byte
	// inputs are the members of Info.Inputs that the worker has located. spans holds
	// start and length for each of them, record by record.
	inputs []string
	spans  []uint32
	// fetched are the names of the files that come with each record; files holds them,
	// record by record.
	fetched []string
	files   [][]byte
	// isolation is how long the kernel may isolate bad records.
	isolation time.Duration
}

// NewBatch returns a batch of records without copying them.
func NewBatch(records [][]byte) Batch { return Batch{records: records} }

// Len returns the number of records, at least 1.
func (b Batch) Len() int { return len(b.records) }

// Record returns record i. The kernel must not modify it, nor use it after the results
// are complete. Its memory is read-only: a kernel process that writes to it crashes.
func (b Batch) Record(i int) []byte { return b.records[i] }

// Decode reads record i into v with encoding/json.
func (b Batch) Decode(i int, v any) error {
	if err := json.Unmarshal(b.records[i], v); err != nil {
		return fmt.Errorf("record %d: %s", i, jsonerr.Explain(err, v, "members"))
	}
	return nil
}
