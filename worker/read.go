package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/worker/fetch"
)

// batchReader reads and validates batches ahead of the kernel.
type batchReader struct {
	reader  *input.Reader
	options wire.Records
	sizes   *batchSizes
	batches chan readBatch
	free    chan *input.Batch
	taken   *takenBatches
	ctx     context.Context // until stop
	cancel  context.CancelFunc
	done    chan struct{}
	// reportReadComplete reports, once, that the whole chunk has been read.
	reportReadComplete func()
	// check scans for a mark, for the inputs (the members that the kernel reads) and for the
	// member to group by.
	check  *jsonline.Wanted
	inputs []string
	// fetch fetches the files that records name; nil if none are fetched. With each, records
	// are passed on before their files have arrived.
	fetch *fetching
	each  bool
}

type readBatch struct {
	group *group
	err   error
}

func (w *Worker) startReading(ctx context.Context, assign wire.Assign) (*batchReader, error) {
	b, err := w.openReader(assign.Chunk)
	if err != nil {
		return nil, err
	}
	b.reportReadComplete = sync.OnceFunc(func() { w.send(wire.Message{ReadComplete: &wire.ReadComplete{Chunk: assign.ID}}) })
	ctx, b.cancel = context.WithCancel(ctx)
	b.ctx = ctx
	if b.fetch != nil {
		b.fetch.done = make(chan struct{})
		go b.fetch.scout(ctx, b.reportReadComplete)
	}
	go b.run(ctx)
	return b, nil
}

func (w *Worker) openReader(c chunk.Chunk) (*batchReader, error) {
	options := w.setup.Records
	reader, err := input.OpenReader(c, options.MaxBytes)
	if err != nil {
		return nil, err
	}
	reader.AllocateWith(w.host.alloc)
	names := slices.Concat([]string{record.ErrorMember}, w.host.info.Inputs)
	if options.GroupBy != "" {
		names = append(names, options.GroupBy)
	}
	return &batchReader{
		reader: reader, options: options, sizes: &w.sizes,
		batches: make(chan readBatch, w.prefetched()), done: make(chan struct{}),
		free: make(chan *input.Batch, 4*ahead), taken: &takenBatches{batches: make(map[*input.Batch][]fetchRecord)},
		inputs: w.host.info.Inputs, check: jsonline.Want(names...), fetch: newFetching(w.openFetcher(), w.setup, c), each: w.host.info.Concurrency > 0,
	}, nil
}

// openFetcher returns the worker's fetcher, which lives as long as the worker; nil if no files are
// fetched.
func (w *Worker) openFetcher() *fetch.Fetcher {
	if o := w.setup.Fetch; w.fetcher == nil && len(o.Members)+len(w.setup.Records.BytesRead) > 0 {
		held := heldBatches + max(1, w.host.info.InFlight) + w.host.info.Ahead
		w.fetcher = fetch.New(fetch.Options{
			Fetch: o, HoldBytes: int64(held) * int64(w.setup.Records.BatchBytes),
			Allocate: w.host.alloc,
		})
	}
	return w.fetcher
}

// prefetched returns how many batches may wait between reading, computing and writing. A
// window counts as one, and one is ready at each end anyway. Batches that grow would be small.
func (w *Worker) prefetched() int {
	if w.setup.Records.GroupBy != "" || w.setup.Records.GrowBatch {
		return 0
	}
	return ahead
}

// one reads a single record.
func (b *batchReader) one() (*batchTask, error) {
	batch := b.empty()
	if err := b.reader.Read(batch, 1, b.options.BatchBytes); err != nil {
		return nil, err
	}
	if b.fetch != nil {
		if err := b.fetch.one(context.Background(), batch.Records[0]); err != nil {
			return nil, err
		}
	}
	return b.prepare(context.Background(), batch)
}

func (b *batchReader) run(ctx context.Context) {
	defer close(b.done)
	defer close(b.batches)
	for {
		batch := b.empty()
		size := b.sizes.size()
		records, bytes, smallest := b.limits(size)
		if b.fetch != nil && !b.each {
			n, err := b.fetch.gather(ctx, records, bytes)
			if err != nil {
				return // the chunk has ended
			}
			records = max(1, n) // without a record left, the reader finds the end
		}
		err := b.reader.Read(batch, records, bytes)
		if errors.Is(err, io.EOF) {
			if b.options.GroupBy == "" { // otherwise the last window is, which takes long to compute
				b.reportReadComplete()
			}
			return
		}
		item := readBatch{err: err}
		if err == nil {
			var task *batchTask
			if task, item.err = b.prepare(ctx, batch); item.err == nil {
				item.group = newGroup(task, size, smallest)
			}
		}
		select {
		case b.batches <- item:
		case <-ctx.Done():
			return
		}
		if item.err != nil {
			return
		}
	}
}

// limits returns how much to read at once: the rest of a batch of size records, or of a window of
// such batches. Every other window begins with its smallest records.
func (b *batchReader) limits(size int) (records, bytes int, smallest bool) {
	rest := b.reader.Rest()
	if b.options.GrowBatch {
		return b.sizes.within(rest.Records), b.options.BatchBytes, false
	}
	most, share := 1, 1
	if b.options.GroupBy != "" {
		if most, share = windowBatches, windowShare; b.sizes.tuning() {
			most = tuneBatches // one trial of a size
		}
	}
	every := rest.Every(size, most)
	return int(rest.Border(0, every)), share * b.options.BatchBytes, rest.First/every%2 == 1
}

// empty returns an empty batch, reusing memory if possible.
func (b *batchReader) empty() *input.Batch {
	var batch *input.Batch
	select {
	case batch = <-b.free:
	default:
		batch = new(input.Batch)
	}
	b.taken.attach(batch, nil)
	return batch
}

// recycle releases a batch's memory for reuse.
func (b *batchReader) recycle(batch *input.Batch) {
	b.taken.remove(batch)
	batch.Release()
	select {
	case b.free <- batch:
	default:
	}
}

// prepare sorts out the records that must not be sent to the kernel.
func (b *batchReader) prepare(ctx context.Context, batch *input.Batch) (*batchTask, error) {
	n := len(batch.Records)
	fetched, err := b.fetchedFor(ctx, batch)
	if err != nil {
		return nil, err
	}
	task := &batchTask{
		batch: batch, ready: n,
		sent: make([]int, 0, n), records: make([][]byte, 0, n), spans: make([]uint32, 0, 2*n*len(b.inputs)),
	}
	var info jsonline.Info
	for i, record := range batch.Records {
		refusal := b.refuse(record, &info)
		var files [][]byte
		if refusal == nil && b.fetch != nil && !b.each {
			files, refusal = fetched[i].contents()
		}
		if refusal != nil {
			if task.refused == nil {
				task.refused = make([]*fault.Error, n)
			}
			task.refused[i] = refusal
			continue
		}
		task.sent = append(task.sent, i)
		task.records = append(task.records, record.Data)
		task.files = append(task.files, files...)
		if b.fetch != nil && b.each {
			task.pending = append(task.pending, &fetched[i])
		}
		for k := range b.inputs {
			span := info.Spans[k+1] // zero if absent or if the record is not an object
			task.spans = append(task.spans, uint32(span.ValueStart), uint32(span.ValueEnd-span.ValueStart))
		}
		if b.options.GroupBy != "" {
			task.costs = append(task.costs, b.cost(record.Data, &info))
		}
	}
	task.inputs = b.inputs
	if b.fetch != nil && !b.each {
		task.fetched = b.fetch.names
	}
	return task, nil
}

// fetchedFor returns what was fetched for the records of a batch, whose memory then lives
// as long as the batch's.
func (b *batchReader) fetchedFor(ctx context.Context, batch *input.Batch) ([]fetchRecord, error) {
	if b.fetch == nil {
		return nil, nil
	}
	if b.each {
		if err := b.fetch.claim(ctx, len(batch.Records)); err != nil {
			return nil, err
		}
	}
	fetched, err := b.fetch.filesOf(batch)
	b.taken.attach(batch, fetched)
	return fetched, err
}

func (b *batchReader) refuse(line input.Record, info *jsonline.Info) *fault.Error {
	if line.TooLong {
		return fault.LineTooLong.New("the line has %d bytes, more than max-record-bytes %d", len(line.Data), b.options.MaxBytes)
	}
	if b.trusts(line.Data) {
		return nil
	}
	if err := b.check.Scan(line.Data, info); err != nil {
		return fault.NotJSON.New("not valid JSON: %w", err)
	}
	if !info.Object || !isMark(line.Data, info.Spans[0]) {
		return nil
	}
	if e := record.Rejected(line.Data[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]); e != nil {
		return e
	}
	if b.options.Reprocess { // the kernel gets records that are marked as failed
		return nil
	}
	return fault.EarlierError.New("the record already has an _error in the input")
}

// cost returns what a record costs in a batch. info is of the scan that validated it. A
// line that was not validated is scanned here; it costs nothing if it is not valid.
func (b *batchReader) cost(line []byte, info *jsonline.Info) int {
	if b.trusts(line) && b.check.Scan(line, info) != nil {
		return 0
	}
	span := info.Spans[1+len(b.inputs)]
	return costOf(line[span.ValueStart:span.ValueEnd])
}

// isMark reports whether a member marks the record as failed. A null does not.
func isMark(line []byte, at jsonline.Span) bool {
	return at.Present() && string(line[at.ValueStart:at.ValueEnd]) != "null"
}

// markText occurs in every record that arrives with a mark.
var markText = []byte(`"` + record.ErrorMember + `"`)

// trusts reports whether to skip validating the line. A line that may be marked, or whose
// members are needed, is always scanned.
func (b *batchReader) trusts(line []byte) bool {
	return b.options.NoValidate && len(b.inputs) == 0 && !bytes.Contains(line, markText)
}

// stop stops reading and waits for it to end. It releases batches that were never computed:
// a chunk may end early.
func (b *batchReader) stop() {
	b.cancel()
	<-b.done
	b.close()
}

func (b *batchReader) close() {
	if b.fetch != nil {
		b.fetch.stop()
	}
	_ = b.reader.Close()
	b.taken.release()
}

// takenBatches are the batches that hold memory, each with the files of its records.
type takenBatches struct {
	mu      sync.Mutex
	batches map[*input.Batch][]fetchRecord
}

// attach adds a batch, or makes files live as long as it.
func (t *takenBatches) attach(batch *input.Batch, files []fetchRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches[batch] = files
}

func (t *takenBatches) remove(batch *input.Batch) {
	t.mu.Lock()
	files := t.batches[batch]
	delete(t.batches, batch)
	t.mu.Unlock()
	for _, r := range files {
		r.release()
	}
}

func (t *takenBatches) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for batch, files := range t.batches {
		batch.Release()
		for _, r := range files {
			r.release()
		}
	}
	clear(t.batches)
}
