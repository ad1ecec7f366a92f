package plugins

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// Concurrent is implemented by kernels that compute records independently of each other,
// such as a client of a model server: they set Info.Concurrency. gpurun then calls Answer
// instead of Process, and keeps that many records in flight: a slow record never delays
// the others. The worker's proxy implements it too, under the same contract.
//
// Process must work as well, for callers that have a batch: see [ProcessEach].
type Concurrent interface {
	Kernel

	// Answer computes one record. It is called from up to Info.Concurrency goroutines at a
	// time, between Open and Close. The memory of the record belongs to the caller and is
	// valid until Answer returns; what the answer refers to must not change afterwards.
	//
	// The answer is final: gpurun does not compute an answered record again, whatever
	// happens to its neighbors. After a crash of the process, only records without an
	// answer are computed again.
	//
	// When ctx is done, because the record has reached its time limit or the job stops,
	// Answer must return soon, with any answer. A result that is complete by then is used.
	// If Answer does not return, gpurun restarts the process.
	Answer(ctx context.Context, record Record) Answer
}

// Answer is the outcome for one record of a [Concurrent] kernel. The functions below make
// one.
type Answer struct {
	// Verdict is Unchanged, Lines, Dropped, Failed, Retry or Later.
	Verdict Verdict
	// Lines replace the record if the verdict is Lines: one or more JSON values without a
	// line break.
	Lines [][]byte
	// Message is why the kernel rejects the record (Failed) or wants to try it again
	// (Retry). It is written to the output, so it should depend on the record alone. For
	// Later, gpurun shows it to the user; empty if only this record has to wait.
	Message string
	// Detail helps to find the cause. It goes to the log and to failures.jsonl.
	Detail string
	// Err is set, with the verdict Failed, if the kernel failed instead of rejecting the
	// record. gpurun classifies it as it does an error of Process.
	Err error
	// After is how long to wait at least before the next attempt (Retry and Later). 0
	// leaves that to gpurun, which waits longer each time.
	After time.Duration
	// Nulls is the number of NaNs and infinities that became null in Lines.
	Nulls int64
	// Figures are counts to add to the counts of the job, by name, whatever the verdict:
	// prompt_tokens, completion_tokens and total_tokens are shown as rates and limit what a
	// job may spend. Names consist of lowercase letters, digits and underscores. gpurun counts
	// requests itself, one for each attempt, except for the verdict Later; with that, requests
	// says that one was sent.
	Figures map[string]int64
	// Server is what the answer shows about the server behind the kernel.
	Server ServerState
}

// ServerState is how a server copes with the requests that it gets. gpurun sends it fewer records
// at a time when it has too much to do, and slowly more again.
type ServerState uint8

const (
	// ServerUnknown: nothing is known. A record that succeeds or is rejected still shows that
	// the server answers.
	ServerUnknown ServerState = iota
	// ServerOverloaded: it did not answer in time.
	ServerOverloaded
	// ServerRefuses: it asks to slow down. With the verdict Retry, gpurun sends no record for
	// After or, if that is 0, for a time that grows while the server serves none.
	ServerRefuses
)

// Replaced answers with lines that replace the record; without any, it drops the record.
func Replaced(lines ...[]byte) Answer {
	if len(lines) == 0 {
		return Answer{Verdict: Dropped}
	}
	return Answer{Verdict: Lines, Lines: lines}
}

// Rejected rejects the record.
func Rejected(format string, args ...any) Answer {
	return Answer{Verdict: Failed, Message: fmt.Sprintf(format, args...)}
}

// FailedBy answers that the kernel failed.
func FailedBy(err error) Answer { return Answer{Verdict: Failed, Err: err} }

// RetryAfter asks for another attempt, not before wait has passed; 0 leaves the time to
// gpurun. A wait means that a server asks to slow down ([ServerRefuses]): gpurun sends no other
// record for that time either, and fewer at a time from then on. The record fails with the
// message when its attempts are used up.
func RetryAfter(wait time.Duration, format string, args ...any) Answer {
	a := Answer{Verdict: Retry, After: wait, Message: fmt.Sprintf(format, args...)}
	if wait > 0 {
		a.Server = ServerRefuses
	}
	return a
}

// TryLater answers that no record can be tried for now, for example because the server that
// computes them cannot be reached. gpurun shows the message, sends no new records, and sends
// this one again after wait. That does not count as an attempt, so the kernel must limit how
// long it lasts: it then answers FailedBy with an error from [Stop]. Without a message, the
// other records do not wait, and gpurun shows nothing.
func TryLater(wait time.Duration, format string, args ...any) Answer {
	return Answer{Verdict: Later, After: wait, Message: fmt.Sprintf(format, args...)}
}

// MaxConcurrency is the largest Info.Concurrency.
const MaxConcurrency = 1 << 16

// Record is one record of a batch.
type Record struct {
	batch Batch
	i     int
}

// At returns record i of the batch.
func (b Batch) At(i int) Record { return Record{b, i} }

// Bytes returns the line; see [Batch.Record].
func (r Record) Bytes() []byte { return r.batch.Record(r.i) }

// Decode reads the record into v with encoding/json.
func (r Record) Decode(v any) error { return r.batch.Decode(r.i, v) }

// Member returns the JSON of a member; see [Batch.Member].
func (r Record) Member(name string) (value []byte, present bool) { return r.batch.Member(r.i, name) }

// Text appends the text of a member to dst; see [Batch.Text].
func (r Record) Text(dst []byte, name string) ([]byte, error) { return r.batch.Text(dst, r.i, name) }

// Fetched returns the file that was fetched for the record; see [Batch.Fetched].
func (r Record) Fetched(name string) (file []byte, found bool) { return r.batch.Fetched(r.i, name) }

// FetchedNames returns the names under which files were fetched.
func (r Record) FetchedNames() []string { return r.batch.FetchedNames() }

// Size returns the bytes of the line and of the files.
func (r Record) Size() int {
	size := len(r.Bytes())
	for _, name := range r.FetchedNames() {
		file, _ := r.Fetched(name)
		size += len(file)
	}
	return size
}

// NewMember is a member to set in a record; Value is its JSON.
type NewMember struct {
	Name  string
	Value []byte
}

// With returns a copy of the record with these members set. The rest of the line stays as
// it is. The record must be a JSON object.
func (r Record) With(members ...NewMember) ([]byte, error) {
	list := make([]jsonline.Member, len(members))
	for i, m := range members {
		list[i] = jsonline.Member(m)
	}
	line, ok := jsonline.Set(r.Bytes(), list...)
	if !ok {
		return nil, fmt.Errorf("the record is not a JSON object: no member can be added to it")
	}
	return line, nil
}

// checked returns the answer as the contract allows it.
func (a Answer) Checked(onCPU bool) Answer {
	switch a.Verdict {
	case Unchanged, Dropped, Retry, Later:
	case Lines:
		if len(a.Lines) == 0 {
			a.Verdict = Dropped
		}
	case Failed:
		if a.Err != nil {
			a.Err = symptom.Classify(fault.Batch, a.Err, onCPU)
		}
	default:
		return FailedBy(fault.KernelContract.New("kernel answered a record with %s", a.Verdict))
	}
	if len(a.Figures) > maxFigures {
		a.Figures = nil
	}
	if size := a.size(); size > maxAnswer {
		return FailedBy(fault.TooLarge.New("kernel returned %d bytes for one record; the limit is %d", size, maxAnswer))
	}
	return a
}

// maxFigures limits how many counts an answer may have.
const maxFigures = 64

// maxAnswer limits the bytes of one answer: many of them are in memory at a time.
const maxAnswer = 64 << 20

func (a Answer) size() int {
	size := len(a.Message) + len(a.Detail)
	for _, line := range a.Lines {
		size += len(line)
	}
	return size
}

// Results returns the answer as the complete results of a batch of one record. The verdict
// must be Unchanged, Lines, Dropped or Failed by rejection.
func (a Answer) Results() *Results {
	r := NewResults(1)
	a.put(r, 0)
	r.complete(nil)
	return r
}

func (a Answer) put(r *Results, i int) {
	r.AddNulls(a.Nulls)
	switch a.Verdict {
	case Unchanged:
		r.Unchanged(i)
	case Lines:
		r.Lines(i, a.Lines...)
	case Dropped:
		r.Drop(i)
	default:
		r.Fail(i, a.Message)
	}
}

// ProcessEach computes a batch with a concurrent kernel: at most n records at a time. A
// record that the kernel wants to try again fails, because only a worker can wait.
func ProcessEach(ctx context.Context, k Concurrent, n int, batch Batch, results *Results) error {
	answers := make([]Answer, batch.Len())
	places := make(chan struct{}, min(max(n, 1), math.MaxInt32))
	var group sync.WaitGroup
	for i := range answers {
		places <- struct{}{}
		group.Go(func() {
			answers[i] = k.Answer(ctx, batch.At(i)).Checked(false)
			<-places
		})
	}
	group.Wait()
	for i, a := range answers {
		if a.Err != nil {
			if kind := fault.KindOf(a.Err); kind != fault.Batch && kind != fault.Record && kind != fault.Timeout {
				return a.Err
			}
			a.Message = a.Err.Error()
		}
		a.put(results, i)
	}
	return nil
}
