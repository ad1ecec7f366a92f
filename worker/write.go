package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// progressInterval is how often the orchestrator hears of a chunk's progress: as
// often as an eye can follow.
const progressInterval = 100 * time.Millisecond

// partWriter turns verdicts into lines, behind the kernel.
type partWriter struct {
	worker  *Worker
	part    *chunk.Part
	release func(*chunk.Batch)
	jobs    chan *work
	// idle are the encoders at hand. There are two: one batch is encoded while the one
	// before it is written.
	idle    chan *encoders
	encoded chan encodedJob
	done    chan struct{}
	broken  chan struct{} // closed at the first error
	once    sync.Once
	failure error
	told    time.Time
	// verbatim: a record that the kernel leaves unchanged goes out as it came in.
	verbatim bool
	first    *wire.FirstBatch // not told yet
	// toldNulls are numbers that became null in the kernel.
	toldNulls int64
}

func (w *Worker) startWriting(assign wire.Assign, release func(*chunk.Batch)) *partWriter {
	p := &partWriter{
		worker: w, release: release,
		part: chunk.NewPart(chunk.PartOptions{
			Path: assign.Part, Spare: assign.Spare, Chunk: assign.Chunk,
			ErrorsApart: w.setup.Records.ErrorsApart, Framed: w.setup.Records.Framed,
			Step: w.setup.Records.Step, Device: w.setup.Device.Name,
		}),
		verbatim: len(w.setup.Records.Keep) == 0 && !w.setup.Records.Framed && !w.setup.Records.Reprocess,
		jobs:     make(chan *work, ahead), idle: make(chan *encoders, 2), encoded: make(chan encodedJob),
		done: make(chan struct{}), broken: make(chan struct{}),
	}
	for range cap(p.idle) {
		p.idle <- newEncoders(w.setup.Records, w.setup.Device.Threads, &w.columns)
	}
	go p.encode()
	go p.run()
	return p
}

// encodedJob is a batch with who has its lines.
type encodedJob struct {
	job   *work
	lines *encoders
}

// nulls counts the numbers that JSON does not have; for use after finish.
func (p *partWriter) nulls() int64 {
	n := p.toldNulls
	for range cap(p.idle) {
		lines := <-p.idle
		n += lines.nulls()
		p.idle <- lines
	}
	return n
}

func (p *partWriter) encode() {
	defer close(p.encoded)
	for job := range p.jobs {
		lines := <-p.idle
		lines.begin(job)
		p.encoded <- encodedJob{job, lines}
	}
}

func (p *partWriter) run() {
	defer close(p.done)
	for next := range p.encoded {
		job := next.job
		if p.failure == nil {
			p.judgeFirst(job)
			if err := p.write(job, next.lines); err != nil {
				p.failure = err
				p.once.Do(func() { close(p.broken) })
			}
		}
		p.idle <- next.lines
		p.release(job.batch)
		if time.Since(p.told) >= progressInterval || p.first != nil {
			p.told = time.Now()
			p.worker.send(wire.Message{Progress: &wire.Progress{
				Counts: p.part.Counts(), First: p.takeFirst(), Memory: p.worker.host.memory(),
			}})
		}
	}
}

// judgeFirst looks at the first batch of the worker's life, and at those behind it as long
// as every record fails: do they, and by the same message?
func (p *partWriter) judgeFirst(job *work) {
	w := p.worker
	if w.judged || len(job.sent) == 0 {
		return
	}
	before := w.first
	w.first = job.judge(before)
	w.judged = w.first.Failed == nil || w.first.Records >= wire.VariedRecords
	if w.judged || before.Records < wire.JudgedRecords || w.first.Varied != before.Varied {
		first := w.first
		p.first = &first
	}
}

// judge adds the records of the batch to those that all failed before; the zero value is
// that of a batch with one that did not.
func (j *work) judge(first wire.FirstBatch) wire.FirstBatch {
	for i := range j.sent {
		v := j.verdict(i)
		failure := v.fault
		if failure == nil {
			if result := v.results.At(v.index); result.Verdict == plugins.Failed {
				failure = rejected(result)
			}
		}
		switch {
		case failure == nil:
			return wire.FirstBatch{}
		case first.Failed == nil:
			first.Failed = failure
		case first.Failed.Alike(failure):
		case first.Failed.OfKernel() && failure.OfKernel():
			first.Varied = true
		default:
			return wire.FirstBatch{}
		}
	}
	first.Records += len(j.sent)
	return first
}

// takeFirst is what is to be told of the first batch, once.
func (p *partWriter) takeFirst() *wire.FirstBatch {
	first := p.first
	p.first = nil
	return first
}

// err is the first error; for use after broken is closed.
func (p *partWriter) err() error {
	<-p.broken
	return p.failure
}

// finish ends the part, behind which rest is left of the chunk; discard throws it
// away.
func (p *partWriter) finish(rest chunk.Chunk, discard bool) (chunk.Segment, error) {
	close(p.jobs)
	<-p.done
	if discard || p.failure != nil {
		p.part.Discard()
		return chunk.Segment{}, p.failure
	}
	return p.part.Close(rest)
}

func (p *partWriter) write(job *work, lines *encoders) error {
	p.toldNulls += job.nulls()
	next := 0 // in job.sent
	same := 0 // the records from here to there are unchanged
	for i := 0; i < job.ready; {
		if i >= same && p.verbatim {
			same = job.unchanged(i, next)
		}
		if i < same {
			if text, n := job.batch.Lines(i, same); n > 0 {
				if err := p.part.SucceedUnchanged(text, n); err != nil {
					return err
				}
				i, next = i+n, next+n
				continue
			}
		}
		record := job.batch.Records[i]
		var err error
		if refusal := job.refusal(i); refusal != nil {
			err = p.fail(record, refusal)
		} else {
			err = p.settle(record, next, job.verdict(next), lines)
			next++
		}
		if err != nil {
			return err
		}
		i++
	}
	return nil
}

// nulls is how many numbers became null in the kernel, in the one call or in all those of
// a search.
func (j *work) nulls() (n int64) {
	if j.results != nil {
		n = j.results.Nulls()
	}
	counted := j.results
	for _, v := range j.verdicts {
		if v.results != nil && v.results != counted {
			counted = v.results
			n += counted.Nulls()
		}
	}
	return n
}

// unchanged is how far the records from i on, which is the next-th of those sent, are
// such that the kernel left as they are: the position behind the last of them.
func (j *work) unchanged(i, next int) int {
	for ; i < j.ready && j.refusal(i) == nil; i, next = i+1, next+1 {
		if v := j.verdict(next); v.fault != nil || v.results.At(v.index).Verdict != plugins.Unchanged {
			break
		}
	}
	return i
}

// settle writes what became of a record that the kernel has seen, the i-th of those.
func (p *partWriter) settle(record chunk.Record, i int, v verdict, encoder *encoders) error {
	if v.fault != nil {
		return p.fail(record, v.fault)
	}
	result := v.results.At(v.index)
	switch result.Verdict {
	case plugins.Dropped:
		return p.part.Drop()
	case plugins.Failed:
		return p.fail(record, rejected(result))
	}
	lines, refusal := encoder.encode(record.Data, i, v)
	if refusal != nil {
		return p.fail(record, refusal)
	}
	return p.part.Succeed(lines)
}

func (p *partWriter) fail(record chunk.Record, e *fault.Error) error {
	if e.Kind == fault.Upstream {
		return p.part.Pass(record)
	}
	return p.part.Fail(record, e)
}

// rejected is the failure of a record that the kernel rejects.
func rejected(result plugins.Result) *fault.Error {
	e := fault.Error{Kind: fault.Record, Message: result.Message, Step: result.Step}
	return e.Bounded()
}
