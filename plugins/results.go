package plugins

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// Verdict is the outcome for one record. The numbers are part of the wire format.
type Verdict uint8

const (
	// NoVerdict means that the kernel has not decided yet. In complete results it is an
	// error of the kernel.
	NoVerdict Verdict = 0
	// Unchanged means that the record is its own result.
	Unchanged Verdict = 1
	// Lines means that one or more lines replace the record.
	Lines Verdict = 2
	// Columns means that the record gets a value of each of the batch's columns.
	Columns Verdict = 3
	// Dropped means that the kernel omits the record from the output on purpose.
	Dropped Verdict = 4
	// Failed means that the kernel rejects the record, which is kept and marked.
	Failed Verdict = 5
	// Retry means that the kernel asks for another attempt. Only an [Answer] can have it.
	Retry Verdict = 7
	// Later means that the kernel cannot try the record for now. Only an [Answer] can have
	// it.
	Later Verdict = 8
)

var verdictNames = [...]string{"no verdict", "unchanged", "lines", "columns", "drop", "fail", "verdict 6", "retry", "later"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Result is the verdict on one record with its data.
type Result struct {
	Verdict Verdict
	Lines   [][]byte // for verdict Lines: one or more
	Message string   // for verdict Failed
	Step    string   // for verdict Failed: the step of a chain; empty if there is none
	// Raised is set for verdict Failed if the kernel did not reject the record, but failed
	// with it (see Results.Raise).
	Raised error
}

// maxColumns is the most members that a splice can look for at once.
const maxColumns = 64

// Results collects the verdicts of one batch. A kernel fills it in Process. Its methods
// are not safe for concurrent use, except where noted.
type Results struct {
	verdicts []Verdict
	// The data of verdicts is kept apart, and allocated for all records when the first
	// one needs it: most batches need none, and it would dominate the size of a small one.
	lines    [][][]byte
	refusals []refusal
	columns  []Column
	nulls    int64
	isolated bool // some of refusals are raised
	// misuse is the first violation of the contract. It is reported when the results are
	// completed, so that the author sees it whatever else happens.
	misuse error

	// onCPU means that the kernel runs on a CPU device.
	onCPU bool
	// lone holds the slices for Line, so that each call need not allocate one.
	lone [][]byte
	// copyOut, if set, copies everything out of the complete results: afterwards the kernel
	// may reuse their memory.
	copyOut func()

	once     sync.Once
	deferred bool
	done     chan struct{}
	err      error
}

// NewResults returns empty results for a batch of n records.
func NewResults(n int) *Results {
	return &Results{verdicts: make([]Verdict, n), done: make(chan struct{})}
}

// refusal is the data of verdict Failed.
type refusal struct {
	message, step string
	raised        error // nil, or a *fault.Error
}

// AddNulls reports that the kernel has written null for n NaNs or infinities in lines or
// JSON columns, because JSON cannot represent them. Columns of numbers need no such
// report: gpurun counts theirs itself.
func (r *Results) AddNulls(n int64) { r.nulls += n }

// Nulls returns the number of nulls reported with AddNulls.
func (r *Results) Nulls() int64 { return r.nulls }

// Unchanged makes record i its own result.
func (r *Results) Unchanged(i int) { r.set(i, Unchanged) }

// Line replaces record i with one line: a JSON value without a line break. For several
// lines use Lines.
func (r *Results) Line(i int, line []byte) {
	if len(r.lone) == cap(r.lone) {
		r.lone = make([][]byte, 0, len(r.verdicts)+1)
	}
	n := len(r.lone)
	r.lone = append(r.lone, line)
	r.setLines(i, r.lone[n:n+1:n+1])
}

// Lines replaces record i with lines; without any lines, it drops the record.
func (r *Results) Lines(i int, lines ...[]byte) {
	if len(lines) == 0 {
		r.Drop(i)
		return
	}
	r.setLines(i, lines)
}

// Drop omits record i from the output on purpose; gpurun counts dropped records.
func (r *Results) Drop(i int) { r.set(i, Dropped) }

// Fail rejects record i. The message is written to the output with the record, so it
// should depend on the record alone.
func (r *Results) Fail(i int, message string) { r.FailIn(i, "", message) }

// FailIn is Fail for a kernel of several steps: step is the one that rejects the record.
func (r *Results) FailIn(i int, step, message string) {
	if !r.set(i, Failed) {
		return
	}
	if r.refusals == nil {
		r.refusals = make([]refusal, len(r.verdicts))
	}
	r.refusals[i] = refusal{message: message, step: step}
}

// Failf is Fail with a format.
func (r *Results) Failf(i int, format string, args ...any) {
	r.Fail(i, fmt.Sprintf(format, args...))
}

// Column adds a column with a value for every record of the batch. Each record without a
// verdict gets its value as a new member, or in place of the member of that name. The
// values for other records are ignored.
func (r *Results) Column(c Column) {
	n, rows := len(r.verdicts), c.Rows()
	switch {
	case c.Name == "":
		r.breach("gave a column without a name")
	case rows < 0:
		r.breach("gave column %q %s, which is not a multiple of its width %d", c.Name, plural(c.length(), "value"), c.Width)
	case len(c.shape) > 1 && c.shapeWidth() != c.Width:
		r.breach("gave column %q the dimensions %d, which do not hold its %s", c.Name, c.shape, plural(c.Width, "value"))
	case rows != n:
		r.miscount("gave column %q values for %s; the batch has %d", c.Name, plural(rows, "record"), n)
	case slices.ContainsFunc(r.columns, func(other Column) bool { return other.Name == c.Name }):
		r.breach("gave column %q twice", c.Name)
	case len(r.columns) == maxColumns:
		r.breach("gave more than %d columns; give one column with a list or an object for each record", maxColumns)
	default:
		r.columns = append(r.columns, c)
	}
}

func (r *Results) setLines(i int, lines [][]byte) {
	if !r.set(i, Lines) {
		return
	}
	if r.lines == nil {
		r.lines = make([][][]byte, len(r.verdicts))
	}
	r.lines[i] = lines
}

// set gives record i a verdict and reports whether the contract allows it.
func (r *Results) set(i int, verdict Verdict) bool {
	switch {
	case i < 0 || i >= len(r.verdicts):
		r.breach("gave a verdict for record %d of a batch of %d", i, len(r.verdicts))
		return false
	case r.verdicts[i] != NoVerdict:
		r.breach("gave record %d of the batch two verdicts: %s, then %s", i, r.verdicts[i], verdict)
		return false
	}
	r.verdicts[i] = verdict
	return true
}

func (r *Results) breach(format string, args ...any) {
	if r.misuse == nil {
		r.misuse = fault.KernelCrashed.Of(fault.Batch, "kernel "+format, args...)
	}
}

// miscount notes a wrong number of values. No record causes it: alone, each record may get the
// right number, and a wrong value. A missing verdict, in contrast, concerns one record.
func (r *Results) miscount(format string, args ...any) {
	if r.misuse == nil {
		r.misuse = fault.KernelCrashed.Of(fault.Incompatible, "kernel "+format, args...)
	}
}

// Defer lets Process return before the results are complete. The kernel must call finish
// when they are, from any goroutine. It must finish batches in order, and have at most
// Info.InFlight of them open at a time. If Process returns an error after Defer, the batch
// still fails.
func (r *Results) Defer() (finish func(error)) {
	r.deferred = true
	return r.complete
}

// complete completes the batch; only the first call has an effect.
func (r *Results) complete(err error) {
	r.once.Do(func() {
		if err == nil {
			err = r.fillVerdicts()
		}
		r.err = symptom.Classify(fault.Batch, err, r.onCPU)
		if r.copyOut != nil {
			r.copyOut()
		}
		close(r.done)
	})
}

// fillVerdicts gives the records without a verdict the verdict Columns, if there are columns,
// and reports missing verdicts.
func (r *Results) fillVerdicts() error {
	if r.misuse != nil {
		return r.misuse
	}
	missing, first := 0, 0
	for i := range r.verdicts {
		if r.verdicts[i] != NoVerdict {
			continue
		}
		if len(r.columns) > 0 {
			r.verdicts[i] = Columns
			continue
		}
		if missing == 0 {
			first = i
		}
		missing++
	}
	if missing > 0 {
		return fault.KernelContract.New("kernel gave %d of %s a verdict; the first without one is record %d of the batch",
			len(r.verdicts)-missing, plural(len(r.verdicts), "record"), first)
	}
	return nil
}

// Wait waits until the results are complete and returns the batch's error, or until ctx
// is done. It is for callers of a kernel and safe for concurrent use.
func (r *Results) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done returns a channel that is closed when the results are complete. It is safe for
// concurrent use.
func (r *Results) Done() <-chan struct{} { return r.done }

// Len returns the number of records.
func (r *Results) Len() int { return len(r.verdicts) }

// At returns the result for record i. It is valid only after Wait has returned nil.
func (r *Results) At(i int) Result {
	result := Result{Verdict: r.verdicts[i]}
	switch result.Verdict {
	case Lines:
		result.Lines = r.lines[i]
	case Failed:
		result.Message, result.Step, result.Raised = r.refusals[i].message, r.refusals[i].step, r.refusals[i].raised
	}
	return result
}

// ColumnList returns the batch's columns. It is valid only after Wait has returned nil.
func (r *Results) ColumnList() []Column { return r.columns }

// Submit calls Process and returns the results, which may still be incomplete if the
// kernel deferred them: use [Results.Wait].
func Submit(ctx context.Context, k Kernel, batch Batch) *Results {
	r := NewResults(batch.Len())
	submit(ctx, k, batch, r)
	return r
}

func submit(ctx context.Context, k Kernel, batch Batch, r *Results) {
	err := k.Process(ctx, batch, r)
	if err != nil || !r.deferred {
		r.complete(err)
	}
}

// Call submits a batch and waits for its results.
func Call(ctx context.Context, k Kernel, batch Batch) (*Results, error) {
	r := Submit(ctx, k, batch)
	return r, r.Wait(ctx)
}

func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
