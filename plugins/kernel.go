package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/internal/fault"
)

// Kernel computes. Authors implement it; the worker holds a proxy that
// implements it too, and both sides keep the same contract.
//
// Calls come one at a time, from one goroutine: Describe any number of times,
// then Open once, then Process for each batch, then Close. Nothing is called
// after an Open that failed but Close.
type Kernel interface {
	// Describe says what the kernel is and needs. It is asked at plan time, in
	// a process of its own without a device, so it must be cheap: no device, no
	// framework import. A configuration it cannot work with is an error here.
	Describe(ctx context.Context, config Config) (Info, error)

	// Open makes the kernel ready for batches on one device: the model is
	// loaded here. It may take long (--open-timeout). An error means that the
	// kernel cannot work on this device with this configuration; the job stops
	// unless it is [DeviceLost] or [OutOfMemory], which cost the device.
	Open(ctx context.Context, device Device, config Config) error

	// Process computes one batch and gives every record of it exactly one
	// verdict in results. Batches come in order. A record may be seen again
	// after a failure, alone or among others.
	//
	// The memory of batch belongs to the caller and is valid until the results
	// are complete; what was given to results must not change until then. They
	// are complete when Process returns, unless the kernel asked for more time
	// with [Results.Defer].
	//
	// An error fails the batch as a whole, and no verdict of it counts. One that
	// is not classified may still be known by its text: see [Classify]. The end of
	// ctx means that nobody waits for the answer any more.
	Process(ctx context.Context, batch Batch, results *Results) error

	// Close releases what Open took. The process ends afterwards, so a kernel
	// without outside resources has nothing to do here.
	Close() error
}

// Info is what a kernel says of itself. The zero value is a kernel without
// wishes.
type Info struct {
	// Name is for people; empty means the name it was started by.
	Name string `json:"name,omitempty"`
	// Version is for people.
	Version string `json:"version,omitempty"`
	// BatchSize is the number of records a batch that suits the kernel, used
	// unless the user sets one; 0 means no wish.
	BatchSize int `json:"batch_size,omitempty"`
	// InFlight is how many batches the kernel takes before the first of them
	// must be complete (see Results.Defer); 0 and 1 mean one at a time, and it
	// is 64 at most.
	InFlight int `json:"in_flight,omitempty"`
	// NeedsGPU: the kernel cannot run on a CPU device.
	NeedsGPU bool `json:"needs_gpu,omitempty"`
	// Frameworks it imports ("torch"); for the plan.
	Frameworks []string `json:"frameworks,omitempty"`
	// MinMemory is the device memory in bytes below which Open cannot succeed.
	MinMemory uint64 `json:"min_memory,omitempty"`
	// CanTrim: the kernel can give cached device memory back.
	CanTrim bool `json:"can_trim,omitempty"`
	// Inputs are the members of a record that the kernel reads (see Batch.Member),
	// 60 at most. The worker finds them while it checks the line; the kernel gets
	// whole records all the same.
	Inputs []string `json:"inputs,omitempty"`
}

// maxInputs is as many as can be looked for at once, with room for the worker's own.
const maxInputs = 60

// Device is where a kernel runs. The process sees exactly this device: it is
// number 0 to every framework, whatever its Index in the machine.
type Device struct {
	// Name is the label of bars and logs: "GPU 3", "CPU 0".
	Name string `json:"name"`
	// Index is its number in the machine, for people.
	Index int `json:"index"`
	// UUID is empty where it is not known.
	UUID string `json:"uuid,omitempty"`
	// Memory in bytes, 0 where it is not known.
	Memory uint64 `json:"memory,omitempty"`
	// Count is how many GPUs the process sees (--gpus-per-worker): 0 on a CPU.
	Count int `json:"count"`
	// GPU is false on a CPU device.
	GPU bool `json:"gpu"`
	// Threads is this worker's share of the CPU cores, at least 1.
	Threads int `json:"threads"`
}

// Config is the JSON value the user gave with --kernel-config; empty if none.
type Config []byte

// Decode reads the configuration into v, a pointer to a struct. An unknown
// member is an error: a mistyped option must not be silently ignored. Without a
// configuration v stays as it is, so set the defaults before.
func (c Config) Decode(v any) error {
	if len(bytes.TrimSpace(c)) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(c))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fault.New(fault.Incompatible, "kernel configuration: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Incompatible, "kernel configuration: there is more behind the first JSON value")
	}
	return nil
}

// Base is a Kernel's Describe, Open and Close for kernels that need none: embed
// it and write Process.
type Base struct{}

// Describe has no wishes.
func (Base) Describe(context.Context, Config) (Info, error) { return Info{}, nil }

// Open has nothing to open.
func (Base) Open(context.Context, Device, Config) error { return nil }

// Close has nothing to close.
func (Base) Close() error { return nil }

// OutOfMemory says that err was for want of device memory: the batch is made
// smaller. A nil err stays nil, as with the two below.
func OutOfMemory(err error) error { return reclassify(fault.OOM, err) }

// DeviceLost says that err comes from a device that no longer works: it is
// retired, and the records go to another.
func DeviceLost(err error) error { return reclassify(fault.Device, err) }

// Detail attaches to err what helps to find its cause (a traceback): it goes to
// the log and to failures.jsonl, not into the output.
func Detail(err error, detail string) error {
	if err == nil {
		return nil
	}
	// One that nobody classified stays so: what it is depends on the method that
	// returns it, and on what err and detail say.
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

// Batch is some records, in input order. A record is the bytes of one line,
// without its end: a valid JSON value, not necessarily an object. (With --no-validate
// the user vouches for that.)
type Batch struct {
	records [][]byte
	// inputs are those of Info whose place is known: spans holds start and length
	// for each of them, record by record.
	inputs []string
	spans  []uint32
}

// NewBatch makes a batch of records, which it does not copy.
func NewBatch(records [][]byte) Batch { return Batch{records: records} }

// Len is the number of records, at least 1.
func (b Batch) Len() int { return len(b.records) }

// Record returns record i. It must not be changed, nor kept after the results
// are complete: a kernel process that writes to it dies.
func (b Batch) Record(i int) []byte { return b.records[i] }

// Decode reads record i into v with encoding/json.
func (b Batch) Decode(i int, v any) error {
	if err := json.Unmarshal(b.records[i], v); err != nil {
		return fmt.Errorf("record %d: %w", i, err)
	}
	return nil
}
