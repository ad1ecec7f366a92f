// Package fault classifies failures by what the caller does next.
//
// A failure is classified once, where its cause is known (a kernel's verdict, a dead
// process, a full disk), and carried from there as an *Error: through the kernel protocol,
// through the worker protocol, into the output and the report. No caller matches on
// strings.
//
//	kernel ──► worker ──► orchestrator ──► exit code
//	   Kind      Kind         Kind
//
// A kind exists only where some code acts differently on it. Its number and name are wire
// format and never reused.
package fault

import (
	"errors"
	"fmt"
)

// Kind determines how a failure is handled.
type Kind uint8

const (
	// Unknown is an unclassified failure: a bug in gpurun.
	Unknown Kind = 0
	// Record: this record was rejected. It is marked; no retry.
	Record Kind = 1
	// Batch: the kernel failed a whole batch. It is bisected to isolate the bad records.
	Batch Kind = 2
	// OOM: out of device memory. The batch is made smaller.
	OOM Kind = 3
	// Crash: the kernel process exited. It is restarted; the second time, as Batch.
	Crash Kind = 4
	// Timeout: the kernel did not respond in time. It is killed; then as Crash.
	Timeout Kind = 5
	// Device: the device was lost. It is retired; its work returns to the queue without
	// counting as an attempt.
	Device Kind = 6
	// Worker: the worker process was lost. Another is started within a budget.
	Worker Kind = 7
	// Incompatible: the kernel cannot work here at all (handshake,
	// configuration, a missing framework): the job stops before it touches a
	// record. Or it breaks its contract, for example with a wrong number of results.
	Incompatible Kind = 8
	// Storage: the disk is full, or a part or the output cannot be written. The
	// job stops.
	Storage Kind = 9
	// Canceled: the job was asked to stop.
	Canceled Kind = 10
	// Upstream: the input record already had an _error. It passes through unchanged.
	Upstream Kind = 11
	// Usage: the request itself is wrong (flags, paths, configuration).
	Usage Kind = 12
	// NoDevice: there is no usable device, or none remains.
	NoDevice Kind = 13
	// Conflict: the job folder is in use, damaged or another job's; or the input changed
	// or the output path was taken during the job.
	Conflict Kind = 14
	// Stopped: the job reached a limit set by the user (failures, time). It can be
	// resumed.
	Stopped Kind = 15
	// Fetch: a file that the record names cannot be read. The record is marked; a retry of
	// the failed records fetches it again.
	Fetch Kind = 16
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
	Fetch:        "fetch",
}

// String returns the kind's name, as written to outputs and reports.
func (k Kind) String() string {
	if name, ok := names[k]; ok {
		return name
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Known reports whether this version has a name for the kind. Another process may send any
// number.
func (k Kind) Known() bool {
	_, ok := names[k]
	return ok
}

// MarshalText writes the name: JSON contains names, never numbers.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a name. An unknown name becomes Unknown: a kernel or a user may have
// written it.
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
	// Message is one line. For a failure that marks records, it depends on the record
	// alone: it is written to the output, which is reproducible.
	Message string `json:"message"`
	// Detail helps to find the cause and may differ from run to run: a traceback, the
	// last lines of stderr. It is written only to logs and failures.jsonl.
	Detail string `json:"detail,omitempty"`
	// Step is the kernel of a chain in which the failure happened; empty if there is only
	// one kernel, or if unknown.
	Step string `json:"step,omitempty"`
	// Sign tells how the failure was recognized, where that affects its handling.
	Sign Sign `json:"sign,omitempty"`
	// Code identifies the cause and what the user can do about it; Value is what that
	// advice is about.
	Code  Code   `json:"code,omitempty"`
	Value string `json:"value,omitempty"`

	cause error
}

// Sign qualifies a kind. Like a kind's name it is wire format; readers ignore unknown
// signs.
type Sign string

const (
	// Outside: a signal from outside killed the process, sent by a person, a scheduler, or
	// the kernel when out of memory; or CUDA's multi-process service (MPS) ended it.
	Outside Sign = "outside"
	// Context: the process has lost its context on the device. If MPS is running, another
	// process may have caused that, and the failure becomes one from outside.
	Context Sign = "context"
	// HostMemory: the host ran out of memory, not the device. A process that leaks cannot
	// continue; a fresh one can.
	HostMemory Sign = "host-memory"
	// Text: the kind was only inferred from the message, which may quote a record.
	Text Sign = "text"
	// Outage: a file cannot be fetched because of the network, the server, or what it permits.
	// Every file may fail in this way for a while.
	Outage Sign = "outage"
)

// New wraps a failure that has a code: an error wrapped with %w is its cause, from which it
// inherits the code and the value. To make a failure, use the methods of its code.
func New(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Kind: kind, Message: err.Error()}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		e.cause = err
		if inner := As(err); inner != nil {
			e.Code, e.Value = inner.Code, inner.Value
		}
	}
	return e
}

// WithDetail returns a copy of e with detail.
func (e *Error) WithDetail(detail string) *Error {
	c := *e
	c.Detail = detail
	return &c
}

// By returns a copy of e that wraps cause for errors.Is; the message stays the same.
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

// InStep returns a copy of e that names the step, unless e already names one.
func (e *Error) InStep(step string) *Error {
	c := *e
	if c.Step == "" {
		c.Step = step
	}
	return &c
}

// Error returns only the message; the kind is for code.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if known in this process.
func (e *Error) Unwrap() error { return e.cause }

// As returns the classified failure in err's chain, or nil.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// KindOf returns the kind of err: Unknown for an unclassified error and for nil.
func KindOf(err error) Kind {
	if e := As(err); e != nil {
		return e.Kind
	}
	return Unknown
}
