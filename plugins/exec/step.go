package exec

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// Is the program in step?
//
// Its n-th line answers the n-th record. One extra line, for example a warning, shifts
// every later answer to the next record, and the lines themselves do not show it. The
// program's behavior does: if it is out of step when it has written one line per record,
// it still owes the answer to the last record. So a batch is accepted only once the
// program has been seen to owe nothing: it is blocked reading its input, and its output
// is empty.
//
// This is conclusive for a program that answers each record before it reads the next,
// whatever its speed. A program that reads ahead while its other threads or processes
// compute is also blocked reading while it owes answers. To detect such a program, it is
// observed while it does owe answers. From then on the kernel relies on silence that
// lasts longer than any wait for an answer so far, which is only as reliable as the
// program's answers are regular.
//
// With an identity (see identity) each line proves its place, and no wait is needed.

const (
	// firstSettle is the minimum time to watch a program after its first batch.
	firstSettle = 20 * time.Millisecond
	// A program that cannot be observed is trusted after it has been silent for
	// silencePatience times the longest wait for a line, within these two bounds.
	silencePatience = 3
	minSilence      = 20 * time.Millisecond
	maxSilence      = 2 * time.Second
	// runningPatience multiplies that time for a program that is seen to be running.
	runningPatience = 10
	// lateGrace is the least time that a program that was seen waiting for input gets to
	// do so again.
	lateGrace = 5 * time.Second
	// blindBatches is the number of consecutive batches accepted by silence after which
	// the kernel stops observing the program.
	blindBatches = 3
	// trusted is how often a program must have been seen computing while it owed answers
	// before a single observation is enough.
	trusted = 16
	// From then on it is observed firstPeriod into a batch, then ever less often.
	firstPeriod = time.Millisecond
	lastPeriod  = time.Second
	// shortDwell is how long it must be seen waiting until then.
	shortDwell = 500 * time.Microsecond
)

// syncState is what is known about whether a program is in step.
type syncState struct {
	batches int
	// seen: the program was blocked reading its input when it owed nothing.
	seen bool
	// opaque: seeing it blocked proves nothing, because it also blocks while it owes
	// answers, or because it was never seen blocked.
	opaque bool
	atWork int // observations in which it owed answers and was not reading
	silent int // consecutive batches accepted by silence
	// last is the last answer of the last batch. unsure: the batch was accepted by
	// silence, or because the program was reading, which later turned out to prove nothing.
	last   *lastAnswer
	unsure bool
}

// unconfirmed returns the answer to check if the program is out of step, or nil if all
// earlier answers are certain.
func (s *syncState) unconfirmed() *lastAnswer {
	if s.unsure {
		return s.last
	}
	return nil
}

// accept records that a batch was taken to be in step.
func (s *syncState) accept(batch plugins.Batch, lines [][]byte, sure bool) {
	s.last, s.unsure = newLastAnswer(batch, lines), !sure
	if s.silent++; sure {
		s.silent = 0
	}
	s.opaque = s.opaque || s.silent >= blindBatches
}

// lastAnswer is the last record of a batch and its answer.
type lastAnswer struct {
	record, line []byte
	unique       bool // no other line of the batch is equal
}

func newLastAnswer(batch plugins.Batch, lines [][]byte) *lastAnswer {
	end := len(lines) - 1
	same := func(line []byte) bool { return bytes.Equal(line, lines[end]) }
	return &lastAnswer{bytes.Clone(batch.Record(end)), lines[end], !slices.ContainsFunc(lines[:end], same)}
}

// observeOwing observes a program that owes answers, while its output is not being read.
func (p *program) observeOwing() {
	s := &p.inStep
	if s.opaque || !p.fed.Load() {
		return
	}
	if p.wantsMore() {
		s.opaque, s.unsure = true, true
	} else {
		s.atWork++
	}
}

// wantsMore reports whether the program has read all records and waits for more, with
// no output pending.
func (p *program) wantsMore() bool {
	if unread(p.stdin) > 0 {
		return false
	}
	waits, _ := p.observer.look()
	return waits && !ready(p.out.pipe, 0)
}

// observeInBackground occasionally observes a program that owes answers, while another
// goroutine reads its output, until stop is called.
func (p *program) observeInBackground() (stop func()) {
	var mu sync.Mutex
	stopped, misleading := false, false
	pause := firstPeriod
	var timer *time.Timer
	mu.Lock()
	timer = time.AfterFunc(pause, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		if reads, starved := p.out.readState(); starved && p.fed.Load() && p.wantsMore() {
			again, starved := p.out.readState()
			misleading = misleading || starved && again == reads
		}
		pause = min(4*pause, lastPeriod)
		timer.Reset(pause)
	})
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
		if misleading {
			p.inStep.opaque, p.inStep.unsure = true, true
		}
	}
}

// settle waits until the program has shown that it owes nothing, and reports whether it
// wrote an extra line instead.
func (p *program) settle(batch plugins.Batch, lines [][]byte) (surplus bool) {
	s := &p.inStep
	defer func() {
		if s.batches++; s.batches == 1 {
			p.out.longest = 0 // the first wait included loading
		}
	}()
	began := time.Now()
	for pause := time.Duration(0); ; pause = min(max(2*pause, 10*time.Microsecond), lastLook/10) {
		more, end := p.out.surplus(pause)
		if more {
			return true
		}
		quiet := time.Since(began)
		waits, runs := false, false
		if !s.opaque && quiet >= p.dwell() {
			waits, runs = p.observer.look()
		}
		switch {
		case end:
			s.accept(batch, lines, true)
			return false
		case waits:
			if more, _ := p.out.surplus(0); more {
				return true
			}
			s.seen = true
			s.accept(batch, lines, true)
			return false
		case quiet >= p.silence() && (!runs || quiet >= runningPatience*p.silence()):
			s.accept(batch, lines, false)
			return false
		}
	}
}

// dwell is how long the program must be silent before an observation counts.
func (p *program) dwell() time.Duration {
	switch {
	case p.inStep.batches == 0:
		return firstSettle
	case p.inStep.atWork >= trusted:
		return 0
	}
	return min(p.out.longest, shortDwell)
}

// silence is how long the program must be silent for its answers to be accepted on
// that evidence alone.
func (p *program) silence() time.Duration {
	longest := silencePatience * p.out.longest
	if p.inStep.seen && !p.inStep.opaque {
		return max(longest, lateGrace)
	}
	return min(max(longest, minSilence), maxSilence)
}

// outOfStep reports a program that has written more lines than it was given records.
type outOfStep struct {
	lines  [][]byte    // the output for the batch, of which one line is not an answer
	line   []byte      // the line that revealed it, if known
	before bool        // it was detected before the batch was sent
	last   *lastAnswer // syncState.unconfirmed
}

func (e *outOfStep) Error() string {
	return "exec: the program wrote more lines than it was given records" + quoted(e.line)
}

// advice is how to fix a program that writes lines that are not answers.
const advice = "it must write exactly one line per record, and messages to standard error; " +
	"exec-id checks every line, exec-mode batch counts the lines of every batch"

// quoted formats a line for a message.
func quoted(line []byte) string {
	const most = 80
	if line == nil {
		return ""
	}
	cut := ""
	if len(line) > most {
		line, cut = line[:most], "…"
	}
	return fmt.Sprintf(": %q%s", line, cut)
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "exec: "+format+"\n", args...) }
