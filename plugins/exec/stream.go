package exec

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// stream sends the batch to the running program, or to a new one if that has exited.
func (k *kernel) stream(batch plugins.Batch) ([][]byte, error) {
	if k.running != nil {
		if err := k.checkRunning(); err != nil {
			return nil, err
		}
	}
	if k.running == nil {
		p, err := startProgram(k.config)
		if err != nil {
			return nil, err
		}
		k.running = p
	}
	lines, err := k.exchange(k.running, batch)
	if err != nil || k.running.ending {
		k.drop()
	}
	return lines, err
}

// checkRunning drops a program that has exited since the last batch: no record of this one
// is to blame. A line that it has written since answers no record.
func (k *kernel) checkRunning() error {
	p := k.running
	more, end := p.out.surplus()
	switch {
	case more && k.identity == nil:
		defer k.drop()
		return surplus(p.peek())
	case more:
		logf("the program wrote a line that answers no record%s; restarting it", quoted(p.peek()))
	case end || p.process.Exited():
		p.process.End(drainTime)
		logf("the program ended between two batches: %s; restarting it", p.process.Exit())
	default:
		return nil
	}
	k.drop()
	return nil
}

// drop kills the running program. The next batch gets a new one.
func (k *kernel) drop() {
	k.running.kill()
	k.running = nil
}

// exchange writes the batch and reads one line per record.
//
// A program that skips an answer waits for more input, and so does the kernel for the answer.
// So if the program is silent for too long, the kernel ends its input: a program that is only
// slow still answers every record, and one that has skipped an answer exits.
func (k *kernel) exchange(p *program, batch plugins.Batch) ([][]byte, error) {
	first := !p.answered
	written := p.feed(batch, false)
	p.out.patience = func() time.Duration { return k.patience.limit(first) }
	p.out.idle = func() {
		logf("no answer for %s; ending the program's input", k.patience.limit(first))
		p.ending = true
		go func() { // a slow program may not have read all of its input yet
			<-written
			p.stdin.Close()
		}()
	}
	lines, total := make([][]byte, 0, batch.Len()), new(atomic.Int64)
	for len(lines) < batch.Len() {
		line, err := p.out.line()
		switch {
		case errors.Is(err, errTooLong):
			err = p.tooLong()
		case err != nil:
			return nil, p.ended(len(lines), batch.Len(), len(line) > 0, written)
		default:
			err = p.measure(line, total)
		}
		if err != nil {
			p.process.KillGroup()
			p.stop(written)
			return nil, err
		}
		k.patience.observe(first, p.out.waited)
		p.out.waited, p.answered, first = 0, true, false
		lines = append(lines, line)
	}
	p.out.idle = nil
	if err := k.prove(p, batch, lines, written); err != nil {
		p.process.KillGroup()
		p.stop(written)
		return nil, err
	}
	return lines, nil
}

// prove checks that the lines answer the batch, as far as that is possible. With an identity
// each line proves its place, except for empty ones at the end: the end of the output proves
// those. Without one, answers are matched by position, and any line too many shows that they
// cannot be.
func (k *kernel) prove(p *program, batch plugins.Batch, lines [][]byte, written <-chan struct{}) error {
	proved := 0
	if k.identity != nil {
		var err error
		if proved, err = k.identity.verify(batch, lines); err != nil {
			return wrongLine(proved, err, lines)
		}
	}
	if more, _ := p.out.surplus(); more && k.identity == nil {
		return surplus(p.peek())
	}
	select {
	case <-written:
	case <-time.After(feedGrace):
		return errors.New("exec: the program answered every record without reading them all")
	}
	if !p.ending && (k.identity == nil || proved == len(lines)) {
		return nil
	}
	p.ending = true
	p.stdin.Close()
	_, err := p.toEnd(lines, batch.Len(), written)
	return err
}

// surplus is the failure of a program that has written more lines than it was given records:
// its answers can no longer be matched to records.
func surplus(line []byte) error {
	return fault.ExtraLines.New("exec: the program wrote more lines than it was given records%s, so its answers, also earlier ones, "+
		"cannot be matched to records by position; %s", quoted(line), advice)
}

// advice is how to fix a program that writes lines that are not answers.
const advice = "it must write exactly one line per record, and messages to standard error; " +
	"exec-id checks every line, exec-mode batch counts the lines of every batch"

// peek returns as much of the next line as has been read.
func (p *program) peek() []byte {
	rest, _ := p.out.lines.Peek(p.out.lines.Buffered())
	for i, c := range rest {
		if c == '\n' {
			return trimEnd(rest[: i+1 : i+1])
		}
	}
	return rest
}

// patience is how long a program may be silent before its input is ended. Ending it too
// early costs only the restart of the program.
type patience struct {
	first, next time.Duration // the longest wait for a process's first answer and for a later one
}

const (
	// firstPatience applies until a process has answered: it may load a model.
	firstPatience = time.Minute
	leastPatience = 2 * time.Second
	// patienceFactor is how many times longer than any wait so far a program may be silent.
	patienceFactor = 10
)

func (p *patience) observe(first bool, waited time.Duration) {
	if first {
		p.first = max(p.first, waited, 1) // 0 means unknown
	} else {
		p.next = max(p.next, waited)
	}
}

func (p *patience) limit(first bool) time.Duration {
	switch {
	case !first:
		return max(leastPatience, patienceFactor*p.next, p.first) // not before a restart would pay
	case p.first == 0:
		return firstPatience
	}
	return max(leastPatience, patienceFactor*p.first)
}

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
