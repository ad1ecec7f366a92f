package python

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
)

// asked are the records that an async kernel computes.
type asked struct {
	session *session

	mu       sync.Mutex
	records  map[uint64]*askedRecord // by number
	number   uint64                  // of the last record
	broken   error                   // why no further record can be computed
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

// compute sends a record to Python and waits for its answer.
func (a *asked) compute(ctx context.Context, record plugins.Record) plugins.Answer {
	r := &askedRecord{record, ctx, make(chan plugins.Answer, 1)}
	number, err := a.add(r)
	if err != nil {
		return plugins.FailedBy(err)
	}
	defer a.session.space.free(number)
	if err := a.send(number, record); err != nil {
		a.reply(number, plugins.FailedBy(err))
	}
	select {
	case answer := <-r.answer:
		return answer
	case <-ctx.Done():
	}
	// If the connection is broken, its reader notices and answers all records.
	_ = a.session.python.channel.Send(request{Type: "cancel", Batch: number})
	for {
		select {
		case answer := <-r.answer:
			return answer
		case <-time.After(unblockGrace):
			a.unblock()
		}
	}
}

func (a *asked) add(r *askedRecord) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return 0, a.broken
	}
	if a.records == nil {
		a.records = make(map[uint64]*askedRecord)
	}
	a.number++
	a.records[a.number] = r
	return a.number, nil
}

// send writes a line and its files to the shared memory and sends Python their positions.
func (a *asked) send(number uint64, record plugins.Record) error {
	at, err := a.session.space.alloc(number, record.Size(), true)
	if err != nil {
		return err
	}
	put := func(data []byte) fields.Area {
		placed := fields.Area{uint64(at), uint64(len(data))}
		at += copy(a.session.python.memory.data[at:], data)
		return placed
	}
	line := put(record.Bytes())
	message := request{Type: "record", Batch: number, Data: &line, Fetched: record.FetchedNames()}
	for _, name := range message.Fetched {
		var at *fields.Area
		if file, _ := record.Fetched(name); file != nil {
			at = new(put(file))
		}
		message.Files = append(message.Files, at)
	}
	_ = a.session.python.channel.Send(message)
	return nil
}

// reply answers a record. It returns false if there is no such record.
func (a *asked) reply(number uint64, answer plugins.Answer) bool {
	a.mu.Lock()
	r := a.records[number]
	delete(a.records, number)
	a.mu.Unlock()
	if r != nil {
		r.answer <- answer
	}
	return r != nil
}

// receive passes answers from Python on.
func (a *asked) receive(r response) error {
	if r.Memory != nil {
		a.session.memory.Store(r.Memory)
	}
	a.session.stopWatch()
	for i := range r.Answers {
		given := &r.Answers[i]
		a.mu.Lock()
		asked := a.records[given.Number]
		a.mu.Unlock()
		if asked == nil || !a.reply(given.Number, given.decode(asked.record.Bytes())) {
			return fault.PythonAnswer.New("Python answered a record that it was not given")
		}
	}
	return nil
}

// decode turns Python's answer into gpurun's. line is the record.
func (a *recordAnswer) decode(line []byte) plugins.Answer {
	answer := plugins.Answer{Verdict: a.Verdict, Message: a.Message, Detail: a.Detail, Nulls: a.Nulls, Figures: a.Figures}
	switch {
	case a.GivenUp:
		answer.Err = fault.KernelException.New("asyncio.CancelledError: the record's task was canceled")
	case a.Raised:
		answer.Err = fault.KernelException.Of(fault.Unknown, "%s", a.Message).WithDetail(a.Detail)
	case a.Verdict == plugins.Retry:
		answer.After = time.Duration(min(a.After, 24*60*60) * float64(time.Second))
	case a.Verdict == patched && len(a.Lines) == 1:
		set, ok := patchLine(line, []byte(a.Lines[0]))
		answer.Verdict, answer.Lines = plugins.Lines, [][]byte{set}
		if !ok {
			answer = plugins.Rejected(notAnObject)
			answer.Figures = a.Figures
		}
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

// fail answers all records with err, and all later ones.
func (a *asked) fail(err error) {
	a.mu.Lock()
	records := a.records
	a.records, a.broken = nil, err
	a.mu.Unlock()
	for _, r := range records {
		r.answer <- plugins.FailedBy(err)
	}
}

// maxWarnings limits how many places are reported.
const maxWarnings = 5

// reportBlocked handles a report of the watchdog.
func (a *asked) reportBlocked(r response) {
	a.mu.Lock()
	a.blocker, a.stack = 0, ""
	if r.Seconds > 0 {
		a.blocker, a.stack = r.Batch, r.Detail
	}
	a.mu.Unlock()
	if r.Seconds == 0 || !r.Long {
		return
	}
	text := fmt.Sprintf("process blocks the event loop at %s: meanwhile no other record is computed; await instead, or use asyncio.to_thread for a call that blocks", r.Where)
	if a.warn(text) {
		for line := range strings.SplitSeq(text+"\n"+r.Detail, "\n") {
			a.session.python.printer.write([]byte(line))
		}
	}
}

// warn adds a warning. It returns false if there is none, it is not new, or there are too many.
func (a *asked) warn(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text == "" || slices.Contains(a.warnings, text) || len(a.warnings) == maxWarnings {
		return false
	}
	a.warnings = append(a.warnings, text)
	return true
}

func (a *asked) allWarnings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.warnings)
}

// blameAhead is how long before the others the record that blocks is answered, so that the
// worker knows whom to blame when it learns that the process must be replaced.
const blameAhead = 100 * time.Millisecond

// unblock ends a process whose event loop is blocked by a record that has had its time.
func (a *asked) unblock() {
	a.mu.Lock()
	number, stack := a.blocker, a.stack
	culprit := a.records[number]
	a.mu.Unlock()
	if culprit == nil || culprit.ctx.Err() == nil {
		return
	}
	blame := fault.KernelTimeout.New("process blocked the event loop beyond the record's time limit").WithDetail(stack).Set("timeout")
	if !a.reply(number, plugins.FailedBy(blame)) {
		return // another record has found it
	}
	time.Sleep(blameAhead)
	a.session.fail(fault.KernelCrashed.New("the kernel's event loop was blocked").WithDetail(stack))
	a.session.python.process.KillGroup()
}
