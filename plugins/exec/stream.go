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

// stream feeds the running program and accepts its answers only if it is in step at the
// end of the batch. Otherwise it kills the program, and a new one recomputes everything
// since the program was last known to be in step: this batch, unless earlier ones were
// accepted only because the program was silent.
func (k *kernel) stream(batch plugins.Batch) ([][]byte, error) {
	lines, err := k.ask(batch)
	var lost *outOfStep
	if !errors.As(err, &lost) {
		return lines, err
	}
	if err := k.confirmEarlier(lost); err != nil {
		return nil, err
	}
	if lost.before {
		k.warnings.warnf("the program wrote an extra line after its answers to a batch%s; restarting it; %s", quoted(lost.line), advice)
		if lines, err = k.ask(batch); !errors.As(err, &lost) {
			return lines, err
		}
	}
	return k.recompute(batch, lost)
}

// confirmEarlier confirms the answers before the batch. If they were accepted because of
// the program's silence, it recomputes the last of them: an extra line before it would
// have shifted it to another record. If it cannot confirm them, the worker must discard
// everything that this program computed.
func (k *kernel) confirmEarlier(lost *outOfStep) error {
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

// ask sends the batch to the running program, or to a new one, and kills the program
// after a failure.
func (k *kernel) ask(batch plugins.Batch) ([][]byte, error) {
	if k.running != nil && k.running.hasExited() { // no record of this batch is to blame
		k.running.process.End(drainTime)
		logf("the program ended between two batches: %s; restarting it", k.running.process.Exit())
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

// recompute computes a batch whose answers were rejected. It closes the program's input
// after the batch, so that all of its lines can be counted.
func (k *kernel) recompute(batch plugins.Batch, lost *outOfStep) ([][]byte, error) {
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
	k.warnings.warnf("the program was out of step: line %d of its output for %s answers no record%s; a new process recomputed the batch; %s",
		at+1, count(batch.Len(), "record"), quoted(line), advice)
	return lines, nil
}

// find returns the first line that differs from the correct answers, and its index. If
// the program's answers vary between runs, that is its first line.
func (e *outOfStep) find(answers [][]byte) ([]byte, int) {
	for i, line := range e.lines {
		if i >= len(answers) || string(line) != string(answers[i]) {
			return line, i
		}
	}
	return e.line, len(e.lines)
}

// exchange writes the batch, reads one line per record, and makes sure that the lines
// answer the batch.
func (p *program) exchange(batch plugins.Batch, id *identity) ([][]byte, error) {
	if more, _ := p.out.surplus(0); more {
		return nil, &outOfStep{before: true, last: p.inStep.unconfirmed(), line: p.peek()}
	}
	written := p.feed(batch, false)
	hint := time.AfterFunc(stallHint, func() {
		logf("no complete answer after %s; if the program buffers its output until its input ends, use exec-mode batch; if it skips records, use exec-mode per-record", stallHint)
	})
	defer hint.Stop()
	lines, err := p.answers(batch, written)
	if err != nil {
		return nil, err
	}
	if more, _ := p.out.surplus(0); more {
		p.stop(written)
		return nil, &outOfStep{lines: lines, line: p.peek(), last: p.inStep.unconfirmed()}
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
			p.inStep.accept(batch, lines, true)
			return lines, nil
		}
	}
	if p.settle(batch, lines) {
		return nil, &outOfStep{lines: lines, line: p.peek(), last: p.inStep.unconfirmed()}
	}
	return lines, nil
}

// answers reads one line per record.
func (p *program) answers(batch plugins.Batch, written chan error) ([][]byte, error) {
	switch {
	case p.inStep.opaque:
	case p.inStep.atWork < trusted:
		p.out.onWait = p.observeOwing
		defer func() { p.out.onWait = nil }()
	default:
		defer p.observeInBackground()()
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

// tooLong returns the failure for a line over the limit.
func (p *program) tooLong() error {
	return fault.New(fault.Batch, "exec: the program wrote a line of more than %d bytes (max-record-bytes)", p.out.most)
}

// wrongCount returns the failure for a program that did not write one line per record.
func wrongCount(lines [][]byte, records int) error {
	text := fmt.Sprintf("exec: the program wrote %s for %s", count(len(lines), "line"), count(records, "record"))
	if len(lines) < records {
		return fault.New(fault.Batch, "%s", text)
	}
	for i, line := range lines {
		if len(line) > 0 && !jsonline.Valid(line) {
			return fault.New(fault.Batch, "%s; line %d is not JSON%s; %s", text, i+1, quoted(line), advice)
		}
	}
	return fault.New(fault.Batch, "%s; %s", text, advice).WithDetail("its last line" + quoted(lines[len(lines)-1]))
}
