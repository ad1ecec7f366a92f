package kerneltest

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// Advice is how to fix what a check found, as a sentence for authors who write tests in Go. A
// program with other words for its users maps these to its own.
type Advice string

// The advice of all checks.
const (
	RejectRecord   Advice = "An error fails the whole batch: to reject a single record, call results.Fail(i, message) and return nil."
	ProcessDied    Advice = "The kernel process must survive every record: see what it printed last."
	SmallerBatch   Advice = "The batch is too large for this device: set Info.BatchSize, and set Options.LargeBatch for the large-batch check."
	OtherSamples   Advice = "The other checks prove little without results: set Options.Records to records that the kernel can compute."
	OneValue       Advice = "Return each line and each encoded value as one JSON value without a line break."
	SeedByRecord   Advice = "gpurun recomputes records after a failure and on resume, and must get the same results: seed random numbers from the record."
	RecordAlone    Advice = "A record's result must depend on that record alone: gpurun may split a batch anywhere, and may recompute a record together with others. If the numbers differ only slightly, set Options.Tolerance; if the dependence is intended, set Options.Neighbors."
	RestoreOrder   Advice = "Results belong to records by their index: if the kernel sorts, buckets or computes records in parallel, restore their order."
	CopyToChange   Advice = "The memory of a batch belongs to the caller: copy a record before changing it (bytes.Clone)."
	CopyToKeep     Advice = "Copy whatever the kernel keeps of a batch after its results are complete."
	FinishInOrder  Advice = "Call finish for the batches in the order in which Process received them."
	SameAnswer     Advice = "gpurun may call it more than once: let the answer depend on the configuration alone."
	NoPreference   Advice = "Leave BatchSize and InFlight at 0 for no preference; InFlight is at most 64."
	NeedsConfig    Advice = "If the kernel needs a configuration, set Options.Config."
	NeedsDevice    Advice = "If the kernel needs another device or configuration, set Options.Device and Options.Config."
	CloseUnopened  Advice = "Planning describes and closes a kernel without opening it: make Close a no-op in that case."
	CloseQuietly   Advice = "Return an error only if the user must know about it: it is logged."
	StartByHand    Advice = "Run the program by hand to see whether it starts."
	ReturnNotPanic Advice = "Return an error instead: in a job, a panic ends the kernel process."
	MoreTime       Advice = "Find out what the kernel is waiting for; if it only needs more time, set Options.Timeout."
	AnswerAlone    Advice = "Answer is called from many goroutines at a time: protect what they share, and let an answer depend on its record alone."
	ObeyContext    Advice = "When ctx is done, Answer must return: pass ctx to every call that waits. Otherwise gpurun must restart the process."
)

// String returns the sentence.
func (a Advice) String() string { return string(a) }

// Failure is the error of a failed check: what is wrong and how to fix it.
type Failure struct {
	// What is wrong.
	What error
	// Advice is how to fix it, the most likely first.
	Advice []Advice
	// Detail is what the kernel printed last, or a stack; may be empty.
	Detail string

	// unusable means that the kernel failed in a step that every check needs.
	unusable bool
}

// Error returns what is wrong, and the advice in the words for authors of Go tests.
func (f *Failure) Error() string { return f.Text(Advice.String) }

// Text is Error with the advice in other words.
func (f *Failure) Text(words func(Advice) string) string {
	texts := make([]string, len(f.Advice))
	for i, a := range f.Advice {
		texts[i] = words(a)
	}
	return strings.TrimRight(fmt.Sprintf("%s.\n%s\n%s", f.What, strings.Join(texts, " "), f.Detail), "\n")
}

// Unwrap returns what is wrong.
func (f *Failure) Unwrap() error { return f.What }

func newFailure(advice Advice, format string, args ...any) *Failure {
	f := &Failure{What: fmt.Errorf(format, args...), Advice: []Advice{advice}}
	if e := fault.As(f.What); e != nil {
		f.Detail = e.Detail
	}
	return f
}
