package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
)

// batchReader reads and checks batches ahead of the kernel.
type batchReader struct {
	reader  *chunk.Reader
	options wire.Records
	sizes   *batchSizes
	batches chan readBatch
	free    chan *chunk.Batch
	taken   takenBatches
	cancel  context.CancelFunc
	done    chan struct{}
	// tellNear says, once, that the chunk is nearly over: all of it is read.
	tellNear func()
	// check looks for a mark, for the inputs, the members that the kernel reads, and
	// for the columns, those that it gave last.
	check   *jsonline.Wanted
	inputs  []string
	columns []string
	seen    *columnNames
}

type readBatch struct {
	work *work
	err  error
}

func (w *Worker) startReading(ctx context.Context, c chunk.Chunk) (*batchReader, error) {
	b, err := w.openReader(c)
	if err != nil {
		return nil, err
	}
	ctx, b.cancel = context.WithCancel(ctx)
	go b.run(ctx)
	return b, nil
}

func (w *Worker) openReader(c chunk.Chunk) (*batchReader, error) {
	options := w.setup.Records
	reader, err := chunk.OpenReader(c, options.MaxBytes)
	if err != nil {
		return nil, err
	}
	reader.AllocateWith(w.host.alloc)
	return &batchReader{
		reader: reader, options: options, sizes: &w.sizes,
		batches: make(chan readBatch, ahead), done: make(chan struct{}),
		free:   make(chan *chunk.Batch, 4*ahead),
		inputs: w.host.info.Inputs, seen: &w.columns,
		tellNear: sync.OnceFunc(func() { w.send(wire.Message{Near: &wire.Near{}}) }),
	}, nil
}

// one reads a single record, and nothing behind it.
func (b *batchReader) one() (*work, error) {
	batch := b.take()
	if err := b.reader.Read(batch, 1, b.options.BatchBytes); err != nil {
		return nil, err
	}
	return b.prepare(batch), nil
}

func (b *batchReader) run(ctx context.Context) {
	defer close(b.done)
	defer close(b.batches)
	for {
		batch := b.take()
		err := b.reader.Read(batch, b.sizes.size(), b.options.BatchBytes)
		if errors.Is(err, io.EOF) {
			b.tellNear()
			return
		}
		item := readBatch{err: err}
		if err == nil {
			item.work = b.prepare(batch)
		}
		select {
		case b.batches <- item:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// take returns a batch whose memory can be used, an old one if there is one.
func (b *batchReader) take() *chunk.Batch {
	var batch *chunk.Batch
	select {
	case batch = <-b.free:
	default:
		batch = new(chunk.Batch)
	}
	b.taken.add(batch)
	return batch
}

// give takes a batch's memory back.
func (b *batchReader) give(batch *chunk.Batch) {
	b.taken.remove(batch)
	batch.Release()
	select {
	case b.free <- batch:
	default:
	}
}

// prepare sorts out the records that the kernel must not see.
func (b *batchReader) prepare(batch *chunk.Batch) *work {
	n := len(batch.Records)
	job := &work{
		batch: batch, ready: n,
		sent: make([]int, 0, n), records: make([][]byte, 0, n), spans: make([]uint32, 0, 2*n*len(b.inputs)),
	}
	b.lookFor(b.seen.get())
	job.places.names = b.columns
	var places []jsonline.Span
	if len(b.columns) > 0 {
		job.places.infos = make([]jsonline.Info, 0, n)
		places = make([]jsonline.Span, 0, n*len(b.columns))
	}
	var info jsonline.Info
	for i, record := range batch.Records {
		if refusal := b.refuse(record, &info); refusal != nil {
			if job.refused == nil {
				job.refused = make([]*fault.Error, n)
			}
			job.refused[i] = refusal
			continue
		}
		job.sent = append(job.sent, i)
		job.records = append(job.records, record.Data)
		for k := range b.inputs {
			span := info.Spans[k+1] // all zero where there is none, or no object
			job.spans = append(job.spans, uint32(span.ValueStart), uint32(span.ValueEnd-span.ValueStart))
		}
		if len(b.columns) > 0 {
			places = b.notePlaces(&job.places, &info, places)
		}
	}
	job.inputs = b.inputs
	return job
}

func (b *batchReader) refuse(record chunk.Record, info *jsonline.Info) *fault.Error {
	if record.TooLong {
		return fault.New(fault.Record, "the line has %d bytes, more than --max-record-bytes %d", len(record.Data), b.options.MaxBytes)
	}
	if b.trusts(record.Data) {
		return nil
	}
	if err := b.check.Scan(record.Data, info); err != nil {
		return fault.New(fault.Record, "not valid JSON: %w", err)
	}
	if !b.options.Reprocess && info.Object && isMark(record.Data, info.Spans[0]) {
		return fault.New(fault.Upstream, "the record came in with an _error")
	}
	return nil
}

// isMark reports whether a member marks the record as failed: null does not.
func isMark(line []byte, at jsonline.Span) bool {
	return at.Present() && string(line[at.ValueStart:at.ValueEnd]) != "null"
}

// markText is what a record that came in with a mark has in it.
var markText = []byte(`"` + chunk.ErrorMember + `"`)

// trusts reports whether the line is not to be looked at. One that may be marked
// is, and so is every line of which members are wanted.
func (b *batchReader) trusts(line []byte) bool {
	return b.options.NoValidate && len(b.inputs) == 0 && !bytes.Contains(line, markText)
}

// stop ends the reading and waits for it. Batches that nobody came to are given
// back: a chunk may end before its last.
func (b *batchReader) stop() {
	b.cancel()
	<-b.done
	b.close()
}

func (b *batchReader) close() {
	_ = b.reader.Close()
	b.taken.release()
}

// takenBatches are those that hold memory.
type takenBatches struct {
	mu      sync.Mutex
	batches map[*chunk.Batch]bool
}

func (t *takenBatches) add(batch *chunk.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.batches == nil {
		t.batches = make(map[*chunk.Batch]bool)
	}
	t.batches[batch] = true
}

func (t *takenBatches) remove(batch *chunk.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.batches, batch)
}

func (t *takenBatches) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for batch := range t.batches {
		batch.Release()
	}
	clear(t.batches)
}
