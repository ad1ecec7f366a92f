package python

import (
	"encoding/json"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/frame"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// request is a message to Python.
type request struct {
	Type string `json:"type"`

	// describe
	File       string   `json:"file,omitempty"`
	Function   string   `json:"function,omitempty"`
	Frameworks []string `json:"frameworks,omitempty"`

	// load, open
	Steps     []resolve.PythonStep `json:"steps,omitempty"`
	Device    *plugins.Device      `json:"device,omitempty"`     // open, like those that follow
	IOWorkers int                  `json:"io_workers,omitempty"` // threads that run prepare
	NaN       string               `json:"nan,omitempty"`
	// PreparedMemory is the path of the memory that holds what prepare processes
	// returned; empty if threads run prepare.
	PreparedMemory string `json:"prepared_memory,omitempty"`

	// Wanted is how many batches to prepare ahead. Sent with open and pace.
	Wanted int `json:"wanted,omitempty"`

	// batch, fields
	Batch  uint64         `json:"batch,omitempty"`
	Count  int            `json:"count,omitempty"`
	Fields []fields.Field `json:"fields,omitempty"`
	Lines  *fields.Field  `json:"lines,omitempty"`
	// Fetched are the names of the files that were fetched for the records.
	Fetched []string `json:"fetched,omitempty"`
	Ask     uint64   `json:"ask,omitempty"`
	// Prepared is what a prepare process returned for the batch.
	Prepared *prepared `json:"prepared,omitempty"`
	// At is the offset of the reserved memory, -1 if there is no room. Sent with
	// fields, in response to reserve.
	At *int `json:"at,omitempty"`
	// Taken is the number of results consumed so far, whose memory is free again.
	// Sent with batch and taken.
	Taken uint64 `json:"taken,omitempty"`
	Error string `json:"error,omitempty"`
	// Isolate is for how many seconds Python may isolate records that make the batch fail.
	Isolate float64 `json:"isolate,omitempty"`

	// Async: process is async. Sent with open.
	Async bool `json:"async,omitempty"`
	// Data is where the line of a record is, Files where its files are, by the names in
	// Fetched; nil for a null. Sent with record; Batch is its number.
	Data  *fields.Area   `json:"data,omitempty"`
	Files []*fields.Area `json:"files,omitempty"`
}

// prepared is where the value that prepare returned is: its pickle and the buffers that
// belong to it, one after another. See runner/handover.py.
type prepared struct {
	At    int   `json:"at"`
	Sizes []int `json:"sizes"`
	// File is the descriptor, in the prepare process, of a file that holds the value
	// because it did not fit into the shared memory. Path is where to open it.
	File int    `json:"file,omitempty"`
	Path string `json:"path,omitempty"`
	// Refused are the records that lack a member which prepare reads.
	Refused json.RawMessage `json:"refused,omitempty"`
}

// bytes returns how large the value is.
func (p *prepared) bytes() int {
	if p == nil {
		return 0
	}
	total := 0
	for _, size := range p.Sizes {
		total += size
	}
	return total
}

// response is a message from Python.
type response struct {
	Type string `json:"type"`

	// failed: a batch, or another request
	Batch   uint64 `json:"batch"`
	failure        // a result with messages has only its Step

	description // described; opened sets only Inputs
	// Ahead: threads run prepare. Sent with opened.
	Ahead bool `json:"ahead"`

	Imports *template.Load `json:"imports"` // loaded; opened, unless the files were loaded before

	// devices: those that each framework sees
	Devices map[string]string `json:"devices"`

	// ask
	Ask       uint64   `json:"ask"`
	Names     []string `json:"names"`
	WantLines bool     `json:"want_lines"`

	Size     int       `json:"size"`     // reserve
	Prepared *prepared `json:"prepared"` // prepared

	// Sources are the user's files loaded since the last response: path and checksum
	// of each.
	Sources [][2]string `json:"sources"`

	// Memory is what the framework holds, if known. Sent with result and trimmed.
	Memory *plugins.FrameworkMemory `json:"memory"`

	answer // result

	Answers []recordAnswer `json:"answers"` // answers
	blocked                // blocked; Batch is the number of the record, 0 if unknown
}

// failure is an exception in Python.
type failure struct {
	Message string `json:"message"`
	Detail  string `json:"detail"`
	Step    string `json:"step"` // of a chain
	// Miscounts: the kernel did not return one result per record.
	Miscounts bool `json:"miscounts"`
}

// err returns the failure as an error. It is not classified yet: the caller does that by its
// text. A wrong number of results is the kernel's fault and not a record's: alone, each
// record may get the right number, and a wrong result.
func (f *failure) err() *fault.Error {
	kind := fault.Unknown
	if f.Miscounts {
		kind = fault.Incompatible
	}
	return fault.KernelException.Of(kind, "%s", f.Message).WithDetail(f.Detail).InStep(f.Step)
}

// description is what a kernel's source declares.
type description struct {
	Requires   []string `json:"requires"`
	Missing    []string `json:"missing"`
	NeedsGPU   bool     `json:"needs_gpu"`
	MinMemory  uint64   `json:"min_memory_mb"`
	MaxWorkers int      `json:"max_workers"`
	Fork       *bool    `json:"fork"`
	BatchSize  int      `json:"batch_size"`
	GroupBy    string   `json:"group_by"`
	Inputs     []string `json:"inputs"`
	OnlyInputs bool     `json:"only_inputs"`
	Prepare    bool     `json:"prepare"`
	// SetupPrepare: prepare runs in processes.
	SetupPrepare bool `json:"setup_prepare"`
	// Async: process gets one record at a time. Concurrency is how many, 0 for the default.
	Async       bool              `json:"async"`
	Concurrency int               `json:"concurrency"`
	Versions    map[string]string `json:"versions"`
	// Installed are the folder of the runner in an installed gpurun package and its version,
	// empty if there is none or the source does not import it.
	Installed [2]string `json:"installed"`
	// Clash says what to do about another package with the files of gpurun's, if the source
	// imports it.
	Clash string `json:"clash"`
	// Imported are the frameworks that the source imports.
	Imported []string `json:"imported"`
}

// maxFrame bounds a message from Python: bulk data goes through shared memory.
const maxFrame = 64 << 20

func receive(channel *frame.Conn) (r response, err error) {
	err = channel.Receive(&r)
	return r, err
}
