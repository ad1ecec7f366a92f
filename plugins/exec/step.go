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
// Its n-th line answers the n-th record it was given. A line too many, a warning
// for example, moves every answer behind it to the next record, and nothing in the
// lines themselves shows it. What shows it is the program: when it has written as many
// lines as it was given records, and is out of step, it still owes the answer to the last
// record. So a batch is believed only when the program was seen to owe nothing: it is
// blocked in reading its input, and its output is empty.
//
// That is certain for a program that answers what it has read before it reads on,
// whatever its speed. One that reads ahead, while others of its threads or processes
// compute, is blocked in reading too while it owes answers. It is found by that: it is
// looked at while it does owe some. From then on its silence must do, for longer than an
// answer has taken before, which is a proof only as far as its answers come evenly.
//
// With an identity (see identity) each line proves itself, and nobody waits.

const (
	// firstSettle is how long the first answer of a program is watched at least.
	firstSettle = 20 * time.Millisecond
	// A program whose input cannot be watched is believed after silence of
	// silencePatience times the longest wait for a line, between these two.
	silencePatience = 3
	leastSilence    = 20 * time.Millisecond
	mostSilence     = 2 * time.Second
	// runningPatience times as long is waited for one that is seen to run.
	runningPatience = 10
	// lateGrace is how long a program that was seen to wait for input may take to do so
	// again, at least.
	lateGrace = 5 * time.Second
	// blindBatches are so many believed by silence that looking is given up.
	blindBatches = 3
	// trusted is how often a program must have been seen at work while it owed answers
	// before one look at it is enough.
	trusted = 16
	// From then on it is looked at after firstPeriod of a batch, and less and less often.
	firstPeriod = time.Millisecond
	lastPeriod  = time.Second
	// shortDwell is for how long it must be seen waiting until then.
	shortDwell = 500 * time.Microsecond
)

// standing is what is known of how a program keeps in step.
type standing struct {
	batches int
	// seen: it was blocked in reading its input when it owed nothing.
	seen bool
	// opaque: that says nothing, since it is so while it owes answers; or it was never
	// seen.
	opaque bool
	atWork int // looks at it while it owed answers, and was not reading
	silent int // batches in a row that were believed by silence
	// last is the end of the last batch. unsure: it was believed by silence, or because
	// the program was reading, which has turned out to say nothing.
	last   *lastAnswer
	unsure bool
}

// doubt is the answer up to which the program is to be checked if it is out of step;
// nil if everything before is certain.
func (s *standing) doubt() *lastAnswer {
	if s.unsure {
		return s.last
	}
	return nil
}

// believe takes a batch for in step.
func (s *standing) believe(batch plugins.Batch, lines [][]byte, sure bool) {
	s.last, s.unsure = newLastAnswer(batch, lines), !sure
	if s.silent++; sure {
		s.silent = 0
	}
	s.opaque = s.opaque || s.silent >= blindBatches
}

// lastAnswer is the end of a batch.
type lastAnswer struct {
	record, line []byte
	unique       bool // no other line of the batch is the same
}

func newLastAnswer(batch plugins.Batch, lines [][]byte) *lastAnswer {
	end := len(lines) - 1
	same := func(line []byte) bool { return bytes.Equal(line, lines[end]) }
	return &lastAnswer{bytes.Clone(batch.Record(end)), lines[end], !slices.ContainsFunc(lines[:end], same)}
}

// watchDebt looks at a program that owes answers, while its output is not read.
func (p *program) watchDebt() {
	s := &p.standing
	if s.opaque || !p.fed.Load() {
		return
	}
	if p.readsOn() {
		s.opaque, s.unsure = true, true
	} else {
		s.atWork++
	}
}

// readsOn reports whether the program has read all records and asks for more, with
// nothing in its output.
func (p *program) readsOn() bool {
	if unread(p.stdin) > 0 {
		return false
	}
	waits, _ := p.observer.look()
	return waits && !ready(p.out.pipe, 0)
}

// watchBeside looks at a program that owes answers now and then, beside the reading of
// its output, until stop is called.
func (p *program) watchBeside() (stop func()) {
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
		if reads, starved := p.out.hunger(); starved && p.fed.Load() && p.readsOn() {
			again, starved := p.out.hunger()
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
			p.standing.opaque, p.standing.unsure = true, true
		}
	}
}

// settle waits until the program has shown that it owes nothing, and reports whether
// there is a line too many instead.
func (p *program) settle(batch plugins.Batch, lines [][]byte) (surplus bool) {
	s := &p.standing
	defer func() {
		if s.batches++; s.batches == 1 {
			p.out.longest = 0 // the program has loaded meanwhile
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
			s.believe(batch, lines, true)
			return false
		case waits:
			if more, _ := p.out.surplus(0); more {
				return true
			}
			s.seen = true
			s.believe(batch, lines, true)
			return false
		case quiet >= p.silence() && (!runs || quiet >= runningPatience*p.silence()):
			s.believe(batch, lines, false)
			return false
		}
	}
}

// dwell is how long the program must be silent before a look at it counts.
func (p *program) dwell() time.Duration {
	switch {
	case p.standing.batches == 0:
		return firstSettle
	case p.standing.atWork >= trusted:
		return 0
	}
	return min(p.out.longest, shortDwell)
}

// silence is how long the program must be silent to be believed for that alone.
func (p *program) silence() time.Duration {
	longest := silencePatience * p.out.longest
	if p.standing.seen && !p.standing.opaque {
		return max(longest, lateGrace)
	}
	return min(max(longest, leastSilence), mostSilence)
}

// outOfStep is a program that has written more lines than it was given records.
type outOfStep struct {
	lines  [][]byte    // its answers to the batch, one of which is none
	line   []byte      // what shows it, if it is known
	before bool        // it was found before the batch: none of its lines is from it
	last   *lastAnswer // standing.doubt
}

func (e *outOfStep) Error() string {
	return "exec: the program wrote more lines than it was given" + quoted(e.line)
}

// advice is what helps against lines that answer nothing.
const advice = "it must answer each record with one line: messages belong on standard error; " +
	"--exec-id checks each line, --exec-mode batch counts the lines of each batch at the end of its output"

// quoted is a line for a message.
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
