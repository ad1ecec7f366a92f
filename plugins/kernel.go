package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonerr"
	"github.com/gpurun/gpurun/plugins/kernel"
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
	// error by its text if the kernel has not done so: see package plugins/symptom. When ctx is done, the
	// caller no longer waits for the results.
	Process(ctx context.Context, batch Batch, results *Results) error

	// Close releases the resources that Open acquired. The process exits afterwards, so
	// a kernel without external resources has nothing to do here.
	Close() error
}

// Info describes a kernel; see [kernel.Info].
type Info = kernel.Info

// Device is where a kernel runs; see [kernel.Device].
type Device = kernel.Device

// Imports is what a kernel process has imported; see [kernel.Imports].
type Imports = kernel.Imports

// Import is one of [Imports].
type Import = kernel.Import

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
		return fault.KernelConfig.New("kernel configuration: %s", jsonerr.Explain(err, v, "settings"))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fault.NotAConfig.Of(fault.Incompatible, "kernel configuration: unexpected data after the first JSON value")
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
	return fault.KernelException.Of(fault.KindOf(err), "%w", err).WithDetail(detail)
}

func reclassify(kind fault.Kind, err error) error {
	if err == nil {
		return nil
	}
	e := fault.KernelException.Of(kind, "%w", err)
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

// Records returns all records; see [Batch.Record].
func (b Batch) Records() [][]byte { return b.records }

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
