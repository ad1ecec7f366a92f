package exec

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// stream feeds the running program. Its answers are believed only when it was in
// step at the end of the batch. One that was not is killed, and what it answered since
// it last was is computed again by a new one: this batch, unless earlier ones were
// believed for the program's silence only.
func (k *kernel) stream(batch plugins.Batch) ([][]byte, error) {
	lines, err := k.ask(batch)
	var lost *outOfStep
	if !errors.As(err, &lost) {
		return lines, err
	}
	if err := k.standBy(lost); err != nil {
		return nil, err
	}
	if lost.before {
		k.warnings.warnf("a line came after the answers to a batch and answers nothing%s; the program is started again; %s", quoted(lost.line), advice)
		if lines, err = k.ask(batch); !errors.As(err, &lost) {
			return lines, err
		}
	}
	return k.askAgain(batch, lost)
}

// standBy makes sure of the answers before the batch. If they were believed for the
// program's silence, the last of them is asked for again: with a line too many before
// it, it was another's. If it cannot be made sure of, the worker must not keep what it
// has of this program.
func (k *kernel) standBy(lost *outOfStep) error {
	if lost.last == nil {
		return nil
	}
	if lost.last.unique {
		p, err := startProgram(k.config)
		if err != nil {
			return err
		}
		defer p.kill()
		lines, err := p.exchangeAll(plugins.NewBatch([][]byte{lost.last.record}), nil, exitGrace)
		if err == nil && bytes.Equal(lines[0], lost.last.line) {
			return nil
		}
	}
	return fault.New(fault.Worker, "%w, and its earlier answers cannot be trusted; %s", lost, advice)
}

// ask gives the batch to the running program, or to a new one; none runs on after a
// failure.
func (k *kernel) ask(batch plugins.Batch) ([][]byte, error) {
	if k.running != nil && k.running.isGone() { // no record of this batch is to blame
		k.running.process.End(drainTime)
		logf("the program ended between two batches: %s; it is started again", k.running.process.Exit())
		k.running.kill()
		k.running = nil
	}
	if k.running == nil {
		p, err := startProgram(k.config)
		if err != nil {
			return nil, err
		}
		k.running = p
	}
	lines, err := k.running.exchange(batch, k.identity)
	if err != nil {
		k.running.kill()
		k.running = nil
	}
	return lines, err
}

// askAgain computes a batch whose answers are not to be believed. The program's input
// ends behind it, so that its lines can be counted to the end of its output.
func (k *kernel) askAgain(batch plugins.Batch, lost *outOfStep) ([][]byte, error) {
	p, err := startProgram(k.config)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	lines, err := p.exchangeAll(batch, k.identity, exitGrace)
	if err != nil {
		return nil, err
	}
	line, at := lost.find(lines)
	k.warnings.warnf("the program was out of step: line %d of %s answers no record%s; the batch was computed again by a new process; %s",
		at+1, count(batch.Len(), "record"), quoted(line), advice)
	return lines, nil
}

// find returns the line that is no answer, and its place, given what the answers are:
// the first that is another. A program that answers otherwise each time has its first
// line named.
func (e *outOfStep) find(answers [][]byte) ([]byte, int) {
	for i, line := range e.lines {
		if i >= len(answers) || string(line) != string(answers[i]) {
			return line, i
		}
	}
	return e.line, len(e.lines)
}

// exchange writes the batch and reads as many lines, and makes sure that they are the
// answers to it.
func (p *program) exchange(batch plugins.Batch, id *identity) ([][]byte, error) {
	if more, _ := p.out.surplus(0); more {
		return nil, &outOfStep{before: true, last: p.standing.doubt(), line: p.peek()}
	}
	written := p.feed(batch, false)
	hint := time.AfterFunc(stallHint, func() {
		logf("no full answer for %s; if the program keeps its lines back until its input ends, use --exec-mode batch; if it leaves some out, --exec-mode per-record", stallHint)
	})
	defer hint.Stop()
	lines, err := p.answers(batch, written)
	if err != nil {
		return nil, err
	}
	if more, _ := p.out.surplus(0); more {
		p.stop(written)
		return nil, &outOfStep{lines: lines, line: p.peek(), last: p.standing.doubt()}
	}
	select {
	case <-written:
	case <-time.After(feedGrace):
		p.stop(written)
		return nil, errors.New("exec: the program answered every record without reading them all")
	}
	if id != nil {
		proved, err := id.verify(batch, lines)
		if err != nil {
			return nil, &outOfStep{lines: lines, line: lines[proved]}
		}
		if proved == len(lines) {
			p.standing.believe(batch, lines, true)
			return lines, nil
		}
	}
	if p.settle(batch, lines) {
		return nil, &outOfStep{lines: lines, line: p.peek(), last: p.standing.doubt()}
	}
	return lines, nil
}

// answers reads a line for each record.
func (p *program) answers(batch plugins.Batch, written chan error) ([][]byte, error) {
	switch {
	case p.standing.opaque:
	case p.standing.atWork < trusted:
		p.out.onWait = p.watchDebt
		defer func() { p.out.onWait = nil }()
	default:
		defer p.watchBeside()()
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
		lines = append(lines, line)
	}
	return lines, nil
}

// peek returns what is known of the line that comes next.
func (p *program) peek() []byte {
	rest, _ := p.out.lines.Peek(p.out.lines.Buffered())
	for i, c := range rest {
		if c == '\n' {
			return trimEnd(rest[: i+1 : i+1])
		}
	}
	return rest
}

// tooLong is the failure of a line over the limit.
func (p *program) tooLong() error {
	return fault.New(fault.Batch, "exec: the program wrote a line of more than %d bytes (--max-record-bytes)", p.out.most)
}

// wrongCount is the failure of a program whose lines are not as many as its records.
func wrongCount(lines [][]byte, records int) error {
	text := fmt.Sprintf("exec: the program wrote %s for %s", count(len(lines), "line"), count(records, "record"))
	if len(lines) < records {
		return fault.New(fault.Batch, "%s", text)
	}
	for i, line := range lines {
		if len(line) > 0 && !jsonline.Valid(line) {
			return fault.New(fault.Batch, "%s; line %d is no JSON%s; %s", text, i+1, quoted(line), advice)
		}
	}
	return fault.New(fault.Batch, "%s; %s", text, advice).WithDetail("its last line" + quoted(lines[len(lines)-1]))
}
