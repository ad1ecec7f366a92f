package wire

import "time"

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
	GrowBatch  bool     `json:"grow_batch,omitempty"`
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
	// RecordTimeout is how long it lets a record take, 0 if it has no limit of its own.
	RecordTimeout time.Duration `json:"record_timeout,omitempty"`
	// ReadsFetched: the kernel reads the files that are fetched for records.
	ReadsFetched bool `json:"reads_fetched,omitempty"`
}
