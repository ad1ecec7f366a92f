package fault

import (
	"maps"
	"slices"
)

// Code identifies a cause and what a user can do about it: the kind tells code how to react,
// the code tells people. Package explain has an entry for each. Messages name no flags,
// because only the program knows its own; where its advice needs a name or a value, that is
// the Value of the error. Like a kind's name a code is wire format; readers ignore unknown
// codes.
type Code string

// usual has the kind that a failure with this code usually has.
var usual = make(map[Code]Kind)

func code(name Code, kind Kind) Code {
	usual[name] = kind
	return name
}

// The codes, in the order of the files of package explain. Where advice has a value, a comment
// says what it is; for all others it is the name of a setting that caused this or can avoid it
// and, after a space, a recommended value: "timeout", "batch-size 256".
var (
	// The command line
	UnknownFlag     = code("unknown-flag", Usage)
	BadValue        = code("bad-value", Usage)
	TooSmall        = code("too-small", Usage)
	FlagsClash      = code("flags-clash", Usage)
	NoInput         = code("no-input", Usage)
	NoOutput        = code("no-output", Usage) // an example of an output
	NoKernel        = code("no-kernel", Usage) // an example of a kernel
	NotAConfig      = code("not-a-config", Usage)
	BadJobFile      = code("bad-job-file", Usage)
	UnknownCode     = code("unknown-code", Usage)
	NoPage          = code("no-page", Usage)
	NoExample       = code("no-example", Usage)
	StdinTwice      = code("stdin-twice", Usage)
	ClosedStream    = code("closed-stream", Usage)
	SideFile        = code("side-file", Usage)
	BadAddress      = code("bad-address", Usage)
	BadScaffold     = code("bad-scaffold", Usage)
	BadSample       = code("bad-sample", Usage)
	NoFolder        = code("no-folder", Usage)
	NoWorkerProgram = code("no-worker-program", Usage)

	// Inputs
	NoSuchInput     = code("no-such-input", Usage)
	RemotePath      = code("remote-path", Usage)
	NoMatch         = code("no-match", Usage)
	NoInputFiles    = code("no-input-files", Usage)
	InputTwice      = code("input-twice", Usage)
	BadInputList    = code("bad-input-list", Usage)
	NotAFile        = code("not-a-file", Usage)
	UnknownFormat   = code("unknown-format", Usage)
	LateBytes       = code("late-bytes", Usage) // the format
	Archive         = code("archive", Usage)
	InputUnreadable = code("input-unreadable", Storage)
	BadInput        = code("bad-input", Storage)
	InputChanged    = code("input-changed", Conflict)
	NotJSON         = code("not-json", Record)
	BadRow          = code("bad-row", Record)
	LineTooLong     = code("line-too-long", Record)
	NoColumns       = code("no-columns", Usage) // the columns: they may be members to keep
	NoSuchColumn    = code("no-such-column", Usage)
	NoCopy          = code("no-copy", Storage)

	// Outputs
	OutputExists        = code("output-exists", Usage)
	OutputOfOtherFiles  = code("output-of-other-files", Usage)
	OutputWithFailures  = code("output-with-failures", Usage)
	NotOurs             = code("not-ours", Usage)
	OutputIsFolder      = code("output-is-folder", Usage)
	SameFile            = code("same-file", Usage)
	OutputFormat        = code("output-format", Usage)
	NotUTF8             = code("not-utf8", Usage)
	NeedsFile           = code("needs-file", Usage)
	WriteFailed         = code("write-failed", Storage)
	BadColumn           = code("bad-column", Usage)
	ColumnMismatch      = code("column-mismatch", Record)
	BadArray            = code("bad-array", Usage)
	BadMember           = code("bad-member", Usage)
	ReaderEnded         = code("reader-ended", Canceled)
	OutputFolderChanged = code("output-folder-changed", Conflict)

	// Kernels, programs and processes
	UnknownKernel    = code("unknown-kernel", Incompatible)
	KernelFile       = code("kernel-file", Incompatible)
	NoProgram        = code("no-program", Incompatible)
	NoShell          = code("no-shell", Incompatible)
	NotAKernel       = code("not-a-kernel", Incompatible) // the path of the program
	KernelNotStarted = code("kernel-not-started", Incompatible)
	KernelVersion    = code("kernel-version", Incompatible)
	KernelConfig     = code("kernel-config", Incompatible)
	KernelUnsuited   = code("kernel-unsuited", Usage)
	KernelFails      = code("kernel-fails", Incompatible)
	KernelException  = code("kernel-exception", Batch)
	KernelTimeout    = code("kernel-timeout", Timeout)
	KernelNotClosed  = code("kernel-not-closed", Timeout)
	KernelCrashed    = code("kernel-crashed", Crash)
	KernelKilled     = code("kernel-killed", Worker)
	OutOfMemory      = code("out-of-memory", OOM)
	TooLarge         = code("too-large", Batch)
	FailsInBatches   = code("fails-in-batches", Incompatible)
	WrongLines       = code("wrong-lines", Batch)
	ExtraLines       = code("extra-lines", Incompatible)
	KernelContract   = code("kernel-contract", Batch)
	BadResult        = code("bad-result", Record)
	SocketFolder     = code("socket-folder", Usage)
	TempFolder       = code("temp-folder", Storage)
	SharedMemory     = code("shared-memory", Usage)
	BadStep          = code("bad-step", Usage)
	Rejected         = code("rejected", Record)

	// Python kernels
	NoPython         = code("no-python", Incompatible)
	NoPackage        = code("no-package", Incompatible)
	PythonNotStarted = code("python-not-started", Incompatible)
	PythonAnswer     = code("python-answer", Crash)

	// Model servers
	BadURL            = code("bad-url", Incompatible)
	NoAPIKey          = code("no-api-key", Incompatible)
	ServerUnreachable = code("server-unreachable", Incompatible)
	BadCertificate    = code("bad-certificate", Incompatible)
	NoRequests        = code("no-requests", Usage) // the member that a prompt probably needs
	DuplicateID       = code("duplicate-id", Usage)
	ServerNotReady    = code("server-not-ready", Incompatible)
	ServerEnded       = code("server-ended", Crash)
	PortTaken         = code("port-taken", Incompatible)
	SpendLimit        = code("spend-limit", Stopped)
	NoTokenCounts     = code("no-token-counts", Incompatible)
	GaveUp            = code("gave-up", Record)

	// Files that records name
	FetchFailed    = code("fetch-failed", Fetch)
	NothingFetched = code("nothing-fetched", Incompatible)
	BadFetch       = code("bad-fetch", Usage)
	NoMember       = code("no-member", Fetch)

	// GPUs
	NoGPU         = code("no-gpu", NoDevice)
	NoGPUSupport  = code("no-gpu-support", NoDevice)
	NeedsGPU      = code("needs-gpu", Incompatible)
	Driver        = code("driver", NoDevice)
	GPUsHidden    = code("gpus-hidden", NoDevice)
	OddGPU        = code("odd-gpu", Device)
	UnknownDevice = code("unknown-device", Usage)
	MIG           = code("mig", Usage)
	UnevenDevices = code("uneven-devices", Usage)
	GPUsHeld      = code("gpus-held", NoDevice)
	Leased        = code("leased", Usage) // the name that holds the lease
	BadLease      = code("bad-lease", Usage)
	LeaseInUse    = code("lease-in-use", Conflict)
	QuotaFile     = code("quota-file", Usage)
	LeaseFolder   = code("lease-folder", Usage)
	MonitorConfig = code("monitor-config", Usage)
	GPULost       = code("gpu-lost", Device)
	NoDeviceLeft  = code("no-device-left", NoDevice)
	SmallGPUs     = code("small-gpus", Incompatible)

	// Jobs
	JobRunning      = code("job-running", Conflict)
	JobChanged      = code("job-changed", Conflict) // what may be accepted as changed: "kernel,config"
	KernelEdited    = code("kernel-edited", Stopped)
	JobFinished     = code("job-finished", Conflict)
	OutputTaken     = code("output-taken", Conflict)
	JobDamaged      = code("job-damaged", Conflict) // the setting that starting over needs because the output exists
	FolderDamaged   = code("folder-damaged", Conflict)
	OutputChanged   = code("output-changed", Conflict)
	PartDamaged     = code("part-damaged", Storage)
	RetryDamaged    = code("retry-damaged", Conflict)
	NoJob           = code("no-job", Usage)
	JobFolderTaken  = code("job-folder-taken", Conflict)
	JobMoved        = code("job-moved", Conflict)
	JobUnfinished   = code("job-unfinished", Conflict)
	OutputMissing   = code("output-missing", Usage)
	NoFailedRecords = code("no-failed-records", Usage)
	LimitReached    = code("limit-reached", Stopped)
	Interrupted     = code("interrupted", Canceled)
	EarlierError    = code("earlier-error", Upstream)
	WorkerLost      = code("worker-lost", Worker)
	OpenFiles       = code("open-files", Usage)
	JobFiles        = code("job-files", Storage)
	NoPermission    = code("no-permission", Usage)
	NoAnswer        = code("no-answer", Conflict)
	NoRunningJob    = code("no-running-job", Usage)

	// Several machines
	BadShardNumber = code("bad-shard-number", Usage)
	NoRun          = code("no-run", Usage)
	NotMerged      = code("not-merged", Usage)
	ShardsMissing  = code("shards-missing", Stopped)
	RunFolderTaken = code("run-folder-taken", Conflict)
	OtherRun       = code("other-run", Conflict) // the run's folder
	RunBegun       = code("run-begun", Conflict)
	RunDamaged     = code("run-damaged", Conflict)
	BadShard       = code("bad-shard", Conflict) // the file that commits the shard
	ShardTaken     = code("shard-taken", Conflict)
	NoHardLinks    = code("no-hard-links", Usage)
	NotForShards   = code("not-for-shards", Usage)
	Slurm          = code("slurm", Usage)
	Kubernetes     = code("kubernetes", Usage)

	// The API
	TokenFile       = code("token-file", Usage)
	BadRequest      = code("bad-request", Usage)
	SettingsRefused = code("settings-refused", Conflict)

	// Bugs
	Bug = code("bug", Unknown)
)

// Advised is the value of a failure whose message says what to do: it needs no advice.
const Advised = "-"

// New returns a failure of the code's usual kind.
func (c Code) New(format string, args ...any) *Error { return c.Of(usual[c], format, args...) }

// Of returns a failure of another kind. An error wrapped with %w keeps its own code, which is
// more specific.
func (c Code) Of(kind Kind, format string, args ...any) *Error {
	e := New(kind, format, args...)
	if e.Code == "" {
		e.Code = c
	}
	return e
}

// Wrap classifies err unless it is already classified. A nil err stays nil.
func (c Code) Wrap(err error) error {
	if err == nil || As(err) != nil {
		return err
	}
	return &Error{Kind: usual[c], Message: err.Error(), Code: c, cause: err}
}

// Codes returns all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(usual)) }

// Known reports whether this version has the code. Another process may send any.
func (c Code) Known() bool {
	_, ok := usual[c]
	return ok
}

// Set returns a copy of e with the value that the advice for its code needs.
func (e *Error) Set(value string) *Error {
	c := *e
	c.Value = value
	return &c
}

// WithCode returns a copy of e with another code.
func (e *Error) WithCode(code Code) *Error {
	c := *e
	c.Code = code
	return &c
}
