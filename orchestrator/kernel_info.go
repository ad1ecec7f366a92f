package orchestrator

import "time"

// KernelInfo is how a kernel describes itself; plugins.Info has the details.
type KernelInfo struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// BatchSize is the batch size that the kernel prefers, 0 for any.
	BatchSize int `json:"batch_size,omitempty"`
	// GrowBatch: each batch has a cost of its own, so larger ones are more efficient.
	GrowBatch bool `json:"grow_batch,omitempty"`
	// InFlight is how many batches it computes at a time.
	InFlight int `json:"in_flight,omitempty"`
	// Ahead is how many more it prepares meanwhile.
	Ahead int `json:"ahead,omitempty"`
	// NeedsGPU and MinMemory, in bytes, are what it needs; with NoDevice it uses no device.
	// Frameworks are what it uses.
	NeedsGPU   bool     `json:"needs_gpu,omitempty"`
	NoDevice   bool     `json:"no_device,omitempty"`
	Frameworks []string `json:"frameworks,omitempty"`
	MinMemory  uint64   `json:"min_memory,omitempty"`
	// CanTrim: it can release unused device memory.
	CanTrim bool `json:"can_trim,omitempty"`
	// Inputs are members of a record that it reads; OnlyInputs: it reads no others.
	// NeedsInputs: a record without one of them always fails.
	Inputs      []string `json:"inputs,omitempty"`
	OnlyInputs  bool     `json:"only_inputs,omitempty"`
	NeedsInputs bool     `json:"needs_inputs,omitempty"`
	// MaxWorkers is how many workers may share its device, 0 for any number.
	MaxWorkers int `json:"max_workers,omitempty"`
	// GroupBy is the member by whose size batches are formed; empty for none.
	GroupBy string `json:"group_by,omitempty"`
	// Concurrency is how many records it computes at a time, each on its own; 0 if it
	// computes batches.
	Concurrency int `json:"concurrency,omitempty"`
	// RecordTimeout is how long it lets a record take, 0 if it has no limit of its own.
	RecordTimeout time.Duration `json:"-"`
	// ReadsFetched: it reads the files that are fetched for records.
	ReadsFetched bool `json:"reads_fetched,omitempty"`
}
