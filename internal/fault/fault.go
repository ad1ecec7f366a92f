// Package fault names the ways in which work can fail, by what is done next.
//
// A failure is classified once, where it is known (a kernel's verdict, a dead
// process, a full disk), and carried from there as an *Error: through the
// kernel protocol, through the worker protocol, into the output and the
// report. Nobody further up matches on strings.
//
//	kernel ──► worker ──► orchestrator ──► exit code
//	   Kind      Kind         Kind
//
// A kind exists only where somebody acts differently on it. Its number and its
// name are wire format: they are never reused.
package fault

import (
	"errors"
	"fmt"
)

// Kind says what is done about a failure.
type Kind uint8

const (
	// Unknown is a failure nobody classified: a bug in gpurun.
	Unknown Kind = 0
	// Record: this record was rejected. It is marked; no retry.
	Record Kind = 1
	// Batch: the kernel failed a batch as a whole. It is halved until the bad
	// records stand alone.
	Batch Kind = 2
	// OOM: out of device memory. The batch is made smaller.
	OOM Kind = 3
	// Crash: the kernel process ended. It is restarted; again: as Batch.
	Crash Kind = 4
	// Timeout: the kernel did not answer in time. It is killed; then as Crash.
	Timeout Kind = 5
	// Device: the device is lost. It is retired; its work goes back free of charge.
	Device Kind = 6
	// Worker: the worker process is gone. Another is started within a budget.
	Worker Kind = 7
	// Incompatible: the kernel cannot work here at all (handshake,
	// configuration, a missing framework). The job stops before it touches a
	// record.
	Incompatible Kind = 8
	// Storage: the disk is full, or a part or the output cannot be written. The
	// job stops.
	Storage Kind = 9
	// Canceled: somebody asked the job to stop.
	Canceled Kind = 10
	// Upstream: the input record carried an _error already. It passes untouched.
	Upstream Kind = 11
	// Usage: the request itself is wrong (flags, paths, configuration).
	Usage Kind = 12
	// NoDevice: no usable device is there, or none is left.
	NoDevice Kind = 13
	// Conflict: the job folder is in use, damaged or another job's, or somebody
	// else came between: the input was changed, the output's name taken.
	Conflict Kind = 14
	// Stopped: a limit that the user set is reached (--halt, --max-time). The job
	// can be gone on with.
	Stopped Kind = 15
)

var names = map[Kind]string{
	Unknown:      "unknown",
	Record:       "record",
	Batch:        "batch",
	OOM:          "oom",
	Crash:        "crash",
	Timeout:      "timeout",
	Device:       "device",
	Worker:       "worker",
	Incompatible: "incompatible",
	Storage:      "storage",
	Canceled:     "canceled",
	Upstream:     "upstream",
	Usage:        "usage",
	NoDevice:     "no-device",
	Conflict:     "conflict",
	Stopped:      "stopped",
}

// String returns the kind's name, as it stands in outputs and reports.
func (k Kind) String() string {
	if name, ok := names[k]; ok {
		return name
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Known reports whether this version has a name for the kind: a number from
// another process may be any.
func (k Kind) Known() bool {
	_, ok := names[k]
	return ok
}

// MarshalText writes the name: JSON forms carry names, never numbers.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a name. A name it does not know becomes Unknown, so that
// an older reader survives a newer writer.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = Unknown
	for kind, name := range names {
		if name == string(text) {
			*k = kind
		}
	}
	return nil
}

// Error is a classified failure.
type Error struct {
	Kind Kind `json:"kind"`
	// Message is one line. For a failure that marks records it depends on the
	// record alone: it is written into the output, which is reproducible.
	Message string `json:"message"`
	// Detail is what helps a person find the cause and may differ from run to
	// run: a traceback, the last lines of stderr. Logs and failures.jsonl only.
	Detail string `json:"detail,omitempty"`
	// Step is the one of several kernels in a chain that it happened in; empty where
	// there is but one, or nobody knows.
	Step string `json:"step,omitempty"`
	// Sign is how the failure is known, where that decides what is done about it.
	Sign Sign `json:"sign,omitempty"`

	cause error
}

// Sign qualifies a kind. Like a kind's name it is wire format; readers ignore a sign
// that they do not know.
type Sign string

const (
	// Outside: a signal ended the process that a process does not raise itself.
	// Somebody sent it: a person, a scheduler, or the kernel for want of memory.
	Outside Sign = "outside"
	// HostMemory: the memory of the host ran out, not that of the device. A process
	// that leaks can compute nothing more; a fresh one can.
	HostMemory Sign = "host-memory"
	// Text: the kind is only what a message reads like. A message may quote a record.
	Text Sign = "text"
)

// New returns a classified failure. What the format wraps with %w is its cause.
func New(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Kind: kind, Message: err.Error()}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		e.cause = err
	}
	return e
}

// Wrap classifies err, unless it is classified already. A nil err stays nil.
func Wrap(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	if e := As(err); e != nil {
		return err
	}
	return &Error{Kind: kind, Message: err.Error(), cause: err}
}

// WithDetail returns a copy of e that carries detail.
func (e *Error) WithDetail(detail string) *Error {
	c := *e
	c.Detail = detail
	return &c
}

// By returns a copy of e that errors.Is finds the cause in; the message stays.
func (e *Error) By(cause error) *Error {
	c := *e
	c.cause = errors.Join(e.cause, cause)
	return &c
}

// Signed returns a copy of e with the sign.
func (e *Error) Signed(sign Sign) *Error {
	c := *e
	c.Sign = sign
	return &c
}

// InStep returns a copy of e that names the step, unless e names one already.
func (e *Error) InStep(step string) *Error {
	c := *e
	if c.Step == "" {
		c.Step = step
	}
	return &c
}

// Error returns the message alone; the kind is for code, not for sentences.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, where it is known in this process.
func (e *Error) Unwrap() error { return e.cause }

// As returns the classified failure in err's chain, or nil.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// KindOf returns the kind of err: Unknown for an unclassified one and for nil.
func KindOf(err error) Kind {
	if e := As(err); e != nil {
		return e.Kind
	}
	return Unknown
}
