package python

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// asked are the records that an async kernel computes. kernel.mu guards it.
type asked struct {
	records  map[uint64]*askedRecord // by number
	blocker  uint64                  // the record that blocks the event loop; 0 if none does, or none is known
	stack    string                  // where it does
	warnings []string
}

type askedRecord struct {
	record plugins.Record
	ctx    context.Context
	answer chan plugins.Answer // has room for the only answer
}

// recordAnswer is Python's answer for one record; see runner/concurrent.py.
type recordAnswer struct {
	Number  uint64          `json:"number"`
	Verdict plugins.Verdict `json:"verdict"`
	Lines   []string        `json:"lines"`
	Message string          `json:"message"`
	Detail  string          `json:"detail"`
	After   float64         `json:"after"` // seconds
	Nulls   int64           `json:"nulls"`
	// Figures are what the kernel has counted; see plugins.Answer.
	Figures map[string]int64 `json:"figures"`
	// Raised: process raised an exception. GivenUp: its task was canceled.
	Raised  bool `json:"raised"`
	GivenUp bool `json:"given_up"`
}

// blocked is the report that a task blocks the event loop, or no longer does (no seconds).
type blocked struct {
	Seconds float64 `json:"seconds"`
	Long    bool    `json:"long"`
	Where   string  `json:"where"`
}

// unblockGrace is how long Python may take to react to a cancellation. It is shorter than
// the time after which the worker ends the process.
const unblockGrace = time.Second

// Answer sends a record to Python and waits for its answer.
func (k *kernel) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	r := &askedRecord{record, ctx, make(chan plugins.Answer, 1)}
	number, err := k.addRecord(r)
	if err != nil {
		return plugins.FailedBy(err)
	}
	defer k.space.give(number)
	if err := k.sendRecord(number, record); err != nil {
		k.settle(number, plugins.FailedBy(err))
	}
	select {
	case a := <-r.answer:
		return a
	case <-ctx.Done():
	}
	// If the connection is broken, its reader notices and answers all records.
	_ = k.python.channel.Send(request{Type: "cancel", Batch: number})
	for {
		select {
		case a := <-r.answer:
			return a
		case <-time.After(unblockGrace):
			k.unblock()
		}
	}
}

func (k *kernel) addRecord(r *askedRecord) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != nil {
		return 0, k.broken
	}
	if k.asked.records == nil {
		k.asked.records = make(map[uint64]*askedRecord)
	}
	k.number++
	k.asked.records[k.number] = r
	return k.number, nil
}

// sendRecord writes a line and its files to the shared memory and sends Python their positions.
func (k *kernel) sendRecord(number uint64, record plugins.Record) error {
	at, err := k.space.take(number, record.Size(), true)
	if err != nil {
		return err
	}
	put := func(data []byte) area {
		placed := area{uint64(at), uint64(len(data))}
		at += copy(k.python.memory.data[at:], data)
		return placed
	}
	line := put(record.Bytes())
	message := request{Type: "record", Batch: number, Data: &line, Fetched: record.FetchedNames()}
	for _, name := range message.Fetched {
		file, _ := record.Fetched(name)
		message.Files = append(message.Files, put(file))
	}
	_ = k.python.channel.Send(message)
	return nil
}

// settle answers a record. It returns false if there is no such record.
func (k *kernel) settle(number uint64, answer plugins.Answer) bool {
	k.mu.Lock()
	r := k.asked.records[number]
	delete(k.asked.records, number)
	k.mu.Unlock()
	if r != nil {
		r.answer <- answer
	}
	return r != nil
}

// takeAnswers takes answers from Python.
func (k *kernel) takeAnswers(r response) error {
	if r.Memory != nil {
		k.memory.Store(r.Memory)
	}
	for i := range r.Answers {
		a := &r.Answers[i]
		k.mu.Lock()
		asked := k.asked.records[a.Number]
		k.mu.Unlock()
		if asked == nil || !k.settle(a.Number, a.decode(asked.record.Bytes())) {
			return fault.PythonAnswer.New("Python answered a record that it was not given")
		}
	}
	return nil
}

// decode turns Python's answer into gpurun's. line is the record.
func (a *recordAnswer) decode(line []byte) plugins.Answer {
	answer := a.verdict(line)
	answer.Figures = a.Figures
	return answer
}

func (a *recordAnswer) verdict(line []byte) plugins.Answer {
	answer := plugins.Answer{Verdict: a.Verdict, Message: a.Message, Detail: a.Detail, Nulls: a.Nulls}
	switch {
	case a.GivenUp:
		answer.Err = fault.KernelException.New("asyncio.CancelledError: the record's task was canceled")
	case a.Raised:
		answer.Err = fault.KernelException.Of(fault.Unknown, "%s", a.Message).WithDetail(a.Detail)
	case a.Verdict == plugins.Retry:
		answer.After = time.Duration(min(a.After, 24*60*60) * float64(time.Second))
	case a.Verdict == patched && len(a.Lines) == 1:
		set, ok := patchLine(line, []byte(a.Lines[0]))
		if !ok {
			return plugins.Rejected("%s", notAnObject)
		}
		return plugins.Answer{Verdict: plugins.Lines, Lines: [][]byte{set}, Nulls: a.Nulls}
	case a.Verdict == plugins.Lines:
		for _, text := range a.Lines {
			answer.Lines = append(answer.Lines, []byte(text))
		}
	}
	return answer
}

const notAnObject = "the record is not a JSON object, so the kernel's members cannot be added to it"

// patchLine sets the members of an encoded object in a line and leaves its other bytes
// unchanged. It returns false if the line is not an object.
func patchLine(line, object []byte) ([]byte, bool) {
	var members []jsonline.Member
	jsonline.Members(object, func(_ []byte, name string, value []byte) bool {
		members = append(members, jsonline.Member{Name: name, Value: value})
		return true
	})
	if len(members) == 0 {
		return line, true
	}
	return jsonline.Set(line, members...)
}

// failRecords answers all records with err.
func (k *kernel) failRecords(err error) {
	k.mu.Lock()
	records := k.asked.records
	k.asked.records = nil
	k.mu.Unlock()
	for _, r := range records {
		r.answer <- plugins.FailedBy(err)
	}
}

// maxBlockedWarnings limits how many places are reported.
const maxBlockedWarnings = 5

// noteBlocked takes a report of the watchdog.
func (k *kernel) noteBlocked(r response) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked.blocker, k.asked.stack = 0, ""
	if r.Seconds == 0 {
		return
	}
	k.asked.blocker, k.asked.stack = r.Batch, r.Detail
	if !r.Long {
		return
	}
	text := fmt.Sprintf("process blocks the event loop at %s: meanwhile no other record is computed; await instead, or use asyncio.to_thread for a call that blocks", r.Where)
	if slices.Contains(k.asked.warnings, text) || len(k.asked.warnings) == maxBlockedWarnings {
		return
	}
	k.asked.warnings = append(k.asked.warnings, text)
	for line := range strings.SplitSeq(text+"\n"+r.Detail, "\n") {
		k.python.printer.write([]byte(line))
	}
}

// Warnings are the places where process blocks the event loop, and what is wrong with an
// installed package.
func (k *kernel) Warnings() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked.warnings)
}

// blameAhead is how long before the others the record that blocks is answered, so that the
// worker knows whom to blame when it learns that the process must be replaced.
const blameAhead = 100 * time.Millisecond

// unblock ends a process whose event loop is blocked by a record that has had its time.
func (k *kernel) unblock() {
	k.mu.Lock()
	number, stack := k.asked.blocker, k.asked.stack
	culprit := k.asked.records[number]
	k.mu.Unlock()
	if culprit == nil || culprit.ctx.Err() == nil {
		return
	}
	blame := fault.KernelTimeout.New("process blocked the event loop beyond the record's time limit").WithDetail(stack).Set("timeout")
	if !k.settle(number, plugins.FailedBy(blame)) {
		return // another record has found it
	}
	time.Sleep(blameAhead)
	k.fail(fault.KernelCrashed.New("the kernel's event loop was blocked").WithDetail(stack))
	k.python.process.KillGroup()
}
