package orchestrator

import "github.com/gpurun/gpurun/internal/fault"

// Fault is the error that Run, Retry and MakePlan return; find it with errors.As. Kind tells
// a program how to react, Message what went wrong. Code and Value identify what the user can
// do about it: messages name no flags, because only the program knows its own.
type Fault = fault.Error

// Kind is a kind of failure; its name appears in outputs and reports.
type Kind = fault.Kind

// The usual kinds of a Fault that Run returns; for other kinds, see the message.
const (
	KindUsage        = fault.Usage        // the Config is invalid
	KindNoDevice     = fault.NoDevice     // no usable device was found, or none is left
	KindIncompatible = fault.Incompatible // the kernel cannot run here, or fails on everything
	KindConflict     = fault.Conflict     // another job owns the folder, or the folder is damaged
	KindStorage      = fault.Storage      // something cannot be read or written; see Report.Resume
	KindStopped      = fault.Stopped      // Halt or MaxTime was reached, or the kernel was edited; see Report.Resume
	KindCanceled     = fault.Canceled     // the context ended; see Report.Resume
)

// Sign is how a failure was recognized, where that affects its handling: a process killed
// from outside, host memory instead of device memory, a kind inferred from a text.
type Sign = fault.Sign

// Code identifies the cause of a Fault or a Notice and what a user can do about it, such as
// "output-exists". Unless the reference of messages says otherwise, the value is the name of a
// setting that caused this or can avoid it.
type Code = fault.Code
