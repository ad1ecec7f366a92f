// Package kernel holds what a kernel and gpurun tell each other before the first record: what the
// kernel is, and where it runs. Package plugins has the rest of the contract.
package kernel

import (
	"cmp"
	"math"
	"slices"
	"time"
)

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
	// plugins.Concurrent, which it must implement then. 0 means that it computes batches. It
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
	// Fresh means that the interpreter of every worker must be a new process, not a fork of one
	// that has imported the kernel's file.
	Fresh bool `json:"fresh,omitempty"`
}

// maxInFlight and maxAhead bound the memory that a kernel can make both sides hold.
const (
	maxInFlight = 64
	maxAhead    = 128
)

// Bounded returns the description without numbers that make no sense.
func (i Info) Bounded() Info {
	i.BatchSize = min(max(i.BatchSize, 0), math.MaxInt32)
	i.InFlight = min(max(i.InFlight, 0), maxInFlight)
	i.Ahead = min(max(i.Ahead, 0), maxAhead)
	i.MaxWorkers = min(max(i.MaxWorkers, 0), math.MaxInt32)
	i.RecordTimeout = max(i.RecordTimeout, 0)
	return i
}

// RecordLimit returns how long a record may take at a kernel with a RecordTimeout, its wait for
// its turn included. It is 0 for other kernels.
func (i Info) RecordLimit() time.Duration {
	if i.RecordTimeout > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * i.RecordTimeout
}

// Then returns what a chain needs in which next computes the results of i. Inputs, GroupBy and
// ReadsFetched come from the first step only, because no other sees the original records.
func (i Info) Then(next Info) Info {
	i.BatchSize = least(i.BatchSize, next.BatchSize)
	i.MaxWorkers = least(i.MaxWorkers, next.MaxWorkers)
	i.GrowBatch = i.GrowBatch && next.GrowBatch // the others may not take large ones
	i.NeedsGPU = i.NeedsGPU || next.NeedsGPU
	i.CanTrim = i.CanTrim || next.CanTrim
	i.Fresh = i.Fresh || next.Fresh
	i.MinMemory += next.MinMemory
	for _, name := range next.Frameworks {
		if !slices.Contains(i.Frameworks, name) {
			i.Frameworks = append(i.Frameworks, name)
		}
	}
	return i
}

// least returns the smaller of two limits, of which 0 is none.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// Imports is what a kernel process has imported before it opens its kernel.
type Imports struct {
	// Took is how long the imports took that this process has waited for, in itself or in the one
	// that it was forked from.
	Took time.Duration `json:"took_ns"`
	// Slowest are the packages that took longest, each without those that it imports itself.
	Slowest []Import `json:"slowest,omitempty"`
	// Shared is how long this process has waited for imports that no further process of its
	// device repeats.
	Shared time.Duration `json:"shared_ns,omitempty"`
}

// Import is a package and how long its import took.
type Import struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// maxSlowest is how many packages Then keeps.
const maxSlowest = 3

// Then returns the imports of two processes, one after the other.
func (i Imports) Then(next Imports) Imports {
	slowest := slices.SortedFunc(slices.Values(slices.Concat(i.Slowest, next.Slowest)), func(a, b Import) int { return cmp.Compare(b.Took, a.Took) })
	return Imports{Took: i.Took + next.Took, Shared: i.Shared + next.Shared, Slowest: slowest[:min(len(slowest), maxSlowest)]}
}

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
