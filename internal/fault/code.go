package fault

// Code identifies what a program can advise its user to do about a failure: the kind tells
// code how to react, the code tells people. Messages name no flags, because only the
// program knows its own. Like a kind's name a code is wire format; readers ignore unknown
// codes.
type Code string

const (
	// Setting: a setting caused this, or can avoid it. The value is the setting's name
	// and, after a space, a recommended value: "timeout", "batch-size 256".
	Setting Code = "setting"
	// Exists: the output exists. The job can replace it if asked to. The value is "files" if
	// the job that wrote it had other input files.
	Exists Code = "exists"
	// Taken: the job is complete, but another program took the output's name.
	Taken Code = "taken"
	// Finished: the job is finished and does not run again unless forced.
	Finished Code = "finished"
	// Damaged: the files of an earlier run are damaged. The job can start over. The value is
	// the setting that this needs because its output exists; "" if none.
	Damaged Code = "damaged"
	// Changed: the job is not the one that an earlier run started. The value is what may
	// be accepted as changed: "kernel,config"; empty if nothing may.
	Changed Code = "changed"
	// Edited: a file of the kernel was edited while the job ran.
	Edited Code = "edited"
	// InputChanged: the input was changed while the job ran.
	InputChanged Code = "input-changed"
	// BadInput: a file of the input is damaged. The job can skip the rest of it.
	BadInput Code = "bad-input"
	// NoColumns: the input has lines, of which no columns can be chosen. The value lists the
	// columns: they may be members to keep.
	NoColumns Code = "no-columns"
	// Archive: the input is an archive of files that are no records. Records can name them.
	Archive Code = "archive"
	// NoRequests: records are not requests of a batch file. The value is the member
	// that a prompt probably needs.
	NoRequests Code = "no-requests"
	// NoJob: no job belongs to the output. It may keep its files in another folder.
	NoJob Code = "no-job"
	// NoKernel: no kernel is named. The value is an example.
	NoKernel Code = "no-kernel"
	// NoOutput: no output is named.
	NoOutput Code = "no-output"
	// NoGPU: no GPU is usable, but the CPU is.
	NoGPU Code = "no-gpu"
	// SmallGPUs: the kernel needs more memory than one of the selected GPUs has.
	SmallGPUs Code = "small-gpus"
	// NotAKernel: the program does not speak the kernel protocol; exec: may run it. The
	// value is its path, or … for any.
	NotAKernel Code = "not-a-kernel"
	// Leased: the name already holds a lease. The value is the name.
	Leased Code = "leased"
	// NoRun: the output is not shared among machines.
	NoRun Code = "no-run"
	// OtherRun: the command differs from the one that divided the job. The value is the
	// run's folder.
	OtherRun Code = "other-run"
	// BadShard: the output of a committed shard is damaged. The value is the file that
	// commits it.
	BadShard Code = "bad-shard"
)

// WithCode returns a copy of e with a code and its value.
func (e *Error) WithCode(code Code, value string) *Error {
	c := *e
	c.Code, c.Value = code, value
	return &c
}

// Set returns a copy of e that names the setting to change.
func (e *Error) Set(setting string) *Error { return e.WithCode(Setting, setting) }
