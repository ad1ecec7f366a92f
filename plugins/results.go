package plugins

import (
	"context"
	"fmt"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// Verdict is what became of a record. The numbers are wire format.
type Verdict uint8

const (
	// NoVerdict: the kernel has not said yet; at the end, its fault.
	NoVerdict Verdict = 0
	// Unchanged: the record is its own result.
	Unchanged Verdict = 1
	// Lines: the record became these lines.
	Lines Verdict = 2
	// Columns: the record gets a value of each of the batch's columns.
	Columns Verdict = 3
	// Dropped: the record has no place in the output, on purpose.
	Dropped Verdict = 4
	// Failed: the kernel rejects the record; it is kept and marked.
	Failed Verdict = 5
)

var verdictNames = [...]string{"no verdict", "unchanged", "lines", "columns", "drop", "fail"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Result is one record's verdict with what belongs to it.
type Result struct {
	Verdict Verdict
	Lines   [][]byte // Verdict Lines: one or more
	Message string   // Verdict Failed
	Step    string   // Verdict Failed: where in a chain; empty where there is none
}

// maxColumns is how many members a splice can look for at once.
const maxColumns = 64

// Results takes the verdicts of one batch. A kernel fills it in Process; the
// methods are for one goroutine at a time.
type Results struct {
	verdicts []Verdict
	// What belongs to a verdict stands apart, for all records once one has it: most
	// batches have none, and a small one would be mostly room for it.
	lines    [][][]byte
	refusals []refusal
	columns  []Column
	nulls    int64
	// misuse is the first breach of the contract, reported when the results are
	// completed: the author learns of it whatever else happens.
	misuse error

	// onCPU: the kernel that fills it runs on a CPU device.
	onCPU bool
	// lone holds the lines of Line, so that each has no memory of its own.
	lone [][]byte
	// take, if set, takes everything out of the results when they are complete:
	// afterwards the kernel may use their memory again.
	take func()

	once     sync.Once
	deferred bool
	done     chan struct{}
	err      error
}

// NewResults makes the results of a batch of n records.
func NewResults(n int) *Results {
	return &Results{verdicts: make([]Verdict, n), done: make(chan struct{})}
}

// refusal is what belongs to verdict Failed.
type refusal struct{ message, step string }

// AddNulls says that n numbers of the results were NaN or infinity and stand as null in
// lines or in columns of JSON, which have no other word for them. In columns of numbers
// they are found without it.
func (r *Results) AddNulls(n int64) { r.nulls += n }

// Nulls is how many numbers AddNulls was told of.
func (r *Results) Nulls() int64 { return r.nulls }

// Unchanged says that record i is its own result.
func (r *Results) Unchanged(i int) { r.set(i, Unchanged) }

// Line gives the one line that record i became: a JSON value without a newline.
// An array of lines has Lines.
func (r *Results) Line(i int, line []byte) {
	if len(r.lone) == cap(r.lone) {
		r.lone = make([][]byte, 0, len(r.verdicts)+1)
	}
	n := len(r.lone)
	r.lone = append(r.lone, line)
	r.setLines(i, r.lone[n:n+1:n+1])
}

// Lines gives the lines that record i became; none at all drops it.
func (r *Results) Lines(i int, lines ...[]byte) {
	if len(lines) == 0 {
		r.Drop(i)
		return
	}
	r.setLines(i, lines)
}

// Drop leaves record i out of the output, on purpose; it is counted.
func (r *Results) Drop(i int) { r.set(i, Dropped) }

// Fail rejects record i. The message stands in the output beside the record, so
// it should depend on the record alone.
func (r *Results) Fail(i int, message string) { r.FailIn(i, "", message) }

// FailIn is Fail for a kernel that is several: step is the one that rejects it.
func (r *Results) FailIn(i int, step, message string) {
	if !r.set(i, Failed) {
		return
	}
	if r.refusals == nil {
		r.refusals = make([]refusal, len(r.verdicts))
	}
	r.refusals[i] = refusal{message, step}
}

// Failf is Fail with a format.
func (r *Results) Failf(i int, format string, args ...any) {
	r.Fail(i, fmt.Sprintf(format, args...))
}

// Column gives a value for every record of the batch. The records without a
// verdict of their own get it as a new member, or in place of the member of that
// name; the values of the others are not looked at.
func (r *Results) Column(c Column) {
	n, rows := len(r.verdicts), c.rows()
	switch {
	case c.Name == "":
		r.breach("gave a column without a name")
		return
	case rows < 0:
		r.breach("gave column %q %s, which cannot be shared out by its width %d", c.Name, plural(c.length(), "value"), c.Width)
		return
	case rows != n:
		r.breach("gave column %q values for %s; the batch has %d", c.Name, plural(rows, "record"), n)
		return
	}
	for _, other := range r.columns {
		if other.Name == c.Name {
			r.breach("gave column %q twice", c.Name)
			return
		}
	}
	if len(r.columns) == maxColumns {
		r.breach("gave more than %d columns", maxColumns)
		return
	}
	r.columns = append(r.columns, c)
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

// set gives record i its verdict, and reports whether it may have it.
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
		r.misuse = fault.New(fault.Batch, "kernel "+format, args...)
	}
}

// Defer tells that the results will be complete only after Process has
// returned: the kernel calls finish, from any goroutine, when they are. Batches
// must be finished in order, at most Info.InFlight of them open at a time. An
// error returned from Process after Defer still fails the batch.
func (r *Results) Defer() (finish func(error)) {
	r.deferred = true
	return r.complete
}

// complete ends the batch; only the first call counts.
func (r *Results) complete(err error) {
	r.once.Do(func() {
		if err == nil {
			err = r.settle()
		}
		r.err = classify(fault.Batch, err, r.onCPU)
		if r.take != nil {
			r.take()
		}
		close(r.done)
	})
}

// settle gives the column verdict where it is due and finds what is missing.
func (r *Results) settle() error {
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
		return fault.New(fault.Batch, "kernel gave %d of %s a verdict; the first without one is record %d of the batch",
			len(r.verdicts)-missing, plural(len(r.verdicts), "record"), first)
	}
	return nil
}

// Wait returns when the results are complete, with the batch's error, or when
// ctx ends. It is the caller's side of Process.
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

// Done is closed when the results are complete.
func (r *Results) Done() <-chan struct{} { return r.done }

// Len is the number of records.
func (r *Results) Len() int { return len(r.verdicts) }

// At returns record i's result; for use after Wait returned nil.
func (r *Results) At(i int) Result {
	result := Result{Verdict: r.verdicts[i]}
	switch result.Verdict {
	case Lines:
		result.Lines = r.lines[i]
	case Failed:
		result.Message, result.Step = r.refusals[i].message, r.refusals[i].step
	}
	return result
}

// ColumnList returns the batch's columns; for use after Wait returned nil.
func (r *Results) ColumnList() []Column { return r.columns }

// Submit is Process as its caller wants it: the results that it returns become
// complete, at once or, where the kernel asked for more time, later.
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

// Call submits a batch and returns when its results are complete.
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
