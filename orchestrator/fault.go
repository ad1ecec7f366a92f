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

// Code identifies what a user can do about a Fault or a Notice.
type Code = fault.Code

// The codes. Where one has a value, its comment says what it is.
const (
	CodeSetting      = fault.Setting      // a setting caused this or can avoid it: its name, perhaps with a value ("batch-size 256")
	CodeExists       = fault.Exists       // the output exists: set Force
	CodeTaken        = fault.Taken        // another program took the output's name: move it away, or set Force
	CodeFinished     = fault.Finished     // the job is finished: set Force to run it again
	CodeDamaged      = fault.Damaged      // files of an earlier run are damaged: set Fresh, and Force if that is the value
	CodeChanged      = fault.Changed      // the job changed since it began: set Fresh, or AcceptChanges to the value
	CodeEdited       = fault.Edited       // a file of the kernel was edited: restore it, or set AcceptChanges
	CodeInputChanged = fault.InputChanged // the input was changed: restore it, or set Fresh
	CodeNoRequests   = fault.NoRequests   // records are not lines of a batch file: for openai: and serve:, set a prompt with members such as the value
	CodeNoJob        = fault.NoJob        // no job belongs to the output: perhaps WorkDir is missing
	CodeNoKernel     = fault.NoKernel     // set Kernel, for example to the value
	CodeNoOutput     = fault.NoOutput     // set Output
	CodeNoGPU        = fault.NoGPU        // no GPU is usable: GPUs "cpu:N" computes on the CPU
	CodeSmallGPUs    = fault.SmallGPUs    // the GPUs are too small: choose others, or several per worker
	CodeNotAKernel   = fault.NotAKernel   // the program, the value, is not a kernel: exec: may run it
)
