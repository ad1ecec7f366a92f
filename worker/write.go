package worker

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// partWriter turns verdicts into output lines while the kernel computes the next batches.
type partWriter struct {
	worker  *Worker
	assign  wire.Assign // the chunk, or what remained of it at the last cut
	part    *commit.Part
	release func(*input.Batch)
	tasks   chan *batchTask
	// idle holds the available encoders. There are two: one batch is encoded while the
	// previous one is written.
	idle     chan *encoders
	encoded  chan encodedTask
	done     chan struct{}
	broken   chan struct{} // closed at the first error
	failure  error
	finished bool
	progress progress
	// copies: records whose lines stay as they are, are written in runs, byte for byte.
	copies bool
	same   int // records of the current batch up to here are unchanged
	// kernelNulls counts numbers that became null in the kernel.
	kernelNulls int64
	latency     histogram.Histogram // of batches since the last message
	suspects    suspects

	// Only the goroutine that computes uses these:
	stats wire.Stats
	late  histogram.Histogram // of batches whose groups were spilled
}

func (w *Worker) startWriting(assign wire.Assign, release func(*input.Batch)) *partWriter {
	records := w.setup.Records
	p := &partWriter{
		worker: w, assign: assign, release: release,
		part: commit.NewPart(commit.PartOptions{
			Path: assign.Part, Chunk: assign.Chunk, Store: records.Store, ErrorsApart: records.ErrorsApart, Rows: records.Columns != nil,
			Step: records.Step, Device: w.setup.Device.Name,
		}),
		copies: records.Store.Copies() && records.Columns == nil && len(records.Keep) == 0 && records.SourceField == "" && !records.Reprocess,
		tasks:  make(chan *batchTask, w.prefetched()), idle: make(chan *encoders, 2), encoded: make(chan encodedTask),
		done: make(chan struct{}), broken: make(chan struct{}),
	}
	for range cap(p.idle) {
		p.idle <- newEncoders(w.layouts, assign.Chunk, w.setup.Device.Threads)
	}
	go p.encode()
	go p.run()
	return p
}

// encodedTask is a batch together with the encoders that hold its lines.
type encodedTask struct {
	task  *batchTask
	lines *encoders
	err   error // its results cannot be stored
}

// add queues a finished group to be written.
func (p *partWriter) add(ctx context.Context, task *batchTask) error {
	select {
	case p.tasks <- task:
		return nil
	default:
	}
	waiting := time.Now()
	defer func() { p.stats.Output += time.Since(waiting) }()
	select {
	case p.tasks <- task:
		return nil
	case <-p.broken:
		return p.err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nulls counts the numbers that JSON cannot represent. Call it only after finish.
func (p *partWriter) nulls() int64 {
	n := p.kernelNulls
	for range cap(p.idle) {
		lines := <-p.idle
		n += lines.nulls()
		p.idle <- lines
	}
	return n
}

func (p *partWriter) encode() {
	defer close(p.encoded)
	for task := range p.tasks {
		lines := <-p.idle
		err := lines.begin(task)
		p.encoded <- encodedTask{task, lines, err}
	}
}

func (p *partWriter) run() {
	defer close(p.done)
	for next := range p.encoded {
		task := next.task
		if p.failure == nil {
			err := next.err
			if err == nil {
				err = p.write(task, next.lines)
			}
			if err != nil {
				p.failure = err
				close(p.broken)
			}
		}
		p.idle <- next.lines
		for _, took := range task.batches {
			if took > 0 {
				p.latency.Add(took)
			}
		}
		p.release(task.batch)
		p.wrote()
	}
}

// takeLatency returns the latency of the batches since the last call. Call it only from run,
// or after finish.
func (p *partWriter) takeLatency() *histogram.Histogram {
	taken := p.latency
	p.latency = histogram.Histogram{}
	return &taken
}

// err waits for the first error and returns it. Call it only if broken is or will be
// closed.
func (p *partWriter) err() error {
	<-p.broken
	return p.failure
}

// finish closes the part; rest is what remains of the chunk after it. With discard it
// deletes the part. After an error it can be called again.
func (p *partWriter) finish(rest chunk.Chunk, discard bool) (segment chunk.Segment, err error) {
	if !p.finished {
		p.finished = true
		close(p.tasks)
		<-p.done
		for range cap(p.idle) {
			lines := <-p.idle
			lines.close()
			p.idle <- lines
		}
	}
	if !discard && p.failure == nil {
		segment, p.failure = p.part.Close(rest)
	}
	if discard || p.failure != nil {
		p.part.Discard()
	}
	return segment, p.failure
}

// statistics returns the statistics of the part. Call it only after finish.
func (p *partWriter) statistics() wire.Stats {
	stats := p.stats
	stats.Nulls, stats.BatchSize, stats.Latency = p.nulls(), p.worker.sizes.found(), p.takeLatency()
	stats.Faulty = p.suspects.faulty()
	stats.Latency.Merge(p.late)
	return stats
}

func (p *partWriter) write(task *batchTask, lines *encoders) error {
	p.kernelNulls += task.nulls()
	p.same = 0
	next := 0 // in task.sent
	for i := 0; i < task.ready; {
		refusal := task.refusal(i)
		outcome := commit.Outcome{Record: task.batch.Records[i], Fault: refusal}
		if refusal == nil {
			outcome = p.outcome(task, lines, i, next)
		}
		if err := p.part.Write(outcome); err != nil {
			return err
		}
		n := max(outcome.Run, 1)
		if refusal == nil {
			next += n
			if outcome.Fault != nil {
				p.suspect(&p.suspects.written, task.batch, i, outcome.Fault)
			}
		}
		i += n
	}
	return nil
}

// outcome returns what the kernel made of record i, which is sent[next], or of a run of records
// that begins with it.
func (p *partWriter) outcome(task *batchTask, lines *encoders, i, next int) commit.Outcome {
	if p.copies {
		if run := p.copied(task, i, next); run.Run > 0 {
			return run
		}
	}
	o, v := commit.Outcome{Record: task.batch.Records[i]}, task.verdict(next)
	if o.Fault = v.fault; o.Fault != nil {
		return o
	}
	switch result := v.results.At(v.index); result.Verdict {
	case plugins.Dropped:
		o.Dropped = true
	case plugins.Failed:
		o.Fault = rejected(result)
	default:
		o.Lines, o.Values, o.Fault = lines.encode(o.Record, next, v)
	}
	return o
}

// copied returns the run of records from i on whose lines stay as they are.
func (p *partWriter) copied(task *batchTask, i, next int) (o commit.Outcome) {
	if i >= p.same {
		p.same = task.unchanged(i, next)
	}
	if i < p.same {
		o.Lines, o.Run = task.batch.Lines(i, p.same)
	}
	return o
}

// nulls returns how many numbers became null in the kernel, in one call or in all calls of
// a search.
func (t *batchTask) nulls() (n int64) {
	if t.results != nil {
		n = t.results.Nulls()
	}
	counted := map[*plugins.Results]bool{t.results: true, nil: true}
	for _, v := range t.verdicts {
		if !counted[v.results] {
			counted[v.results] = true
			n += v.results.Nulls()
		}
	}
	return n
}

// unchanged returns the end of the run of records, starting at i, that the kernel left
// unchanged. Record i is sent[next].
func (t *batchTask) unchanged(i, next int) int {
	for ; i < t.ready && t.refusal(i) == nil; i, next = i+1, next+1 {
		if v := t.verdict(next); v.fault != nil || v.results.At(v.index).Verdict != plugins.Unchanged {
			break
		}
	}
	return i
}

// rejected returns the failure of a record that the kernel rejected or isolated.
func rejected(result plugins.Result) *fault.Error {
	if raised := fault.As(result.Raised); raised != nil {
		return raised
	}
	e := fault.Error{Kind: fault.Record, Code: fault.Rejected, Message: result.Message, Step: result.Step}
	return e.Bounded()
}
