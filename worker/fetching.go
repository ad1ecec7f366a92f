package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/worker/fetch"
)

// fetching reads the records of a chunk ahead of the batches and begins to fetch the files
// that they name. It has a reader of its own: how many records make a batch is known only
// when their files have arrived, because files count as bytes of the batch.
//
//	scout ──► FIELD of each record ──► fetch.Fetcher
//	  │ records, in order                   │ files
//	  ▼                                     ▼
//	gather: as many records as make a batch ──► batchReader reads exactly those
type fetching struct {
	fetcher *fetch.Fetcher
	members []wire.FetchMember
	names   []string // of members
	options wire.Records
	wanted  *jsonline.Wanted // the mark, and the fields of members
	chunk   chunk.Chunk

	records chan fetchRecord // in input order, their files begun
	ready   []fetchRecord    // their files fetched, not in a batch yet
	done    chan struct{}    // closed when the scout has ended; nil if there is none
	waits   sync.WaitGroup   // for files of records that have been passed on
	figures fetchFigures
}

// fetchRecord is a record whose files are being fetched.
type fetchRecord struct {
	index int64
	bytes int      // of the line and, once they are fetched, of the files
	fetch bool     // false: the kernel does not get the record anyway
	files []fileOf // one for each member
}

// fileOf is a file of a record.
type fileOf struct {
	item    *fetch.Item  // nil if it failed, or is in the record itself
	failure *fault.Error // why the record has no file
	inline  bool         // it is a data: URI
}

// fetchFigures are the counts for metrics.
type fetchFigures struct {
	mu                              sync.Mutex
	files, bytes, failures, retries int64
	wait                            time.Duration
}

const (
	// scoutRecords and scoutBytes are how much the scout reads at once.
	scoutRecords = 64
	scoutBytes   = 1 << 20
	// heldBatches is how many times batch-bytes of files a worker holds in addition to the
	// batches that its kernel has.
	heldBatches = 8
)

// newFetching returns nil if no files are fetched.
func (w *Worker) newFetching(c chunk.Chunk) *fetching {
	members := w.setup.Fetch.Members
	if len(members) == 0 {
		return nil
	}
	f := &fetching{fetcher: w.openFetcher(), members: members, options: w.setup.Records, chunk: c}
	fields := []string{record.ErrorMember}
	for _, m := range members {
		f.names, fields = append(f.names, m.Name), append(fields, m.Field)
	}
	f.wanted = jsonline.Want(fields...)
	f.records = make(chan fetchRecord, max(4*f.fetcher.Concurrency(), 2*w.setup.Records.BatchSize))
	return f
}

// openFetcher returns the worker's fetcher, which lives as long as the worker.
func (w *Worker) openFetcher() *fetch.Fetcher {
	if w.fetcher == nil {
		o, held := w.setup.Fetch, heldBatches+max(1, w.host.info.InFlight)+w.host.info.Ahead
		w.fetcher = fetch.New(fetch.Options{
			Root: o.Root, MaxBytes: o.MaxBytes, Concurrency: o.Concurrency, PerHost: o.PerHost,
			Timeout: o.Timeout, Retries: o.Retries, AllowPrivate: o.AllowPrivate,
			HoldBytes: int64(held) * int64(w.setup.Records.BatchBytes),
			Allocate: func(size int) fetch.Memory {
				if memory := w.host.alloc(size); memory != nil {
					return memory
				}
				return nil
			},
		})
	}
	return w.fetcher
}

// scout reads the chunk and begins to fetch. It calls complete at the end.
func (f *fetching) scout(ctx context.Context, complete func()) {
	defer close(f.done)
	defer close(f.records)
	reader, err := input.OpenReader(f.chunk, f.options.MaxBytes)
	if err != nil {
		return // the reader of batches reports it
	}
	defer reader.Close()
	var batch input.Batch
	defer batch.Release()
	for {
		if err := reader.Read(&batch, scoutRecords, scoutBytes); err != nil {
			if errors.Is(err, io.EOF) {
				complete()
			}
			return
		}
		for _, r := range batch.Records {
			begun := f.begin(ctx, r, f.fetcher.Start)
			select {
			case f.records <- begun:
			case <-ctx.Done():
				begun.release()
				return
			}
		}
		batch.Release()
	}
}

// begin begins to fetch the files of a record.
func (f *fetching) begin(ctx context.Context, r input.Record, start func(context.Context, string) *fetch.Item) fetchRecord {
	begun := fetchRecord{index: r.Index, bytes: len(r.Data)}
	var info jsonline.Info
	if r.TooLong || f.wanted.Scan(r.Data, &info) != nil || !f.options.Reprocess && info.Object && isMark(r.Data, info.Spans[0]) {
		return begun
	}
	begun.fetch, begun.files = true, make([]fileOf, len(f.members))
	for k, m := range f.members {
		var span jsonline.Span
		if info.Object {
			span = info.Spans[k+1]
		}
		value, failure := fieldText(r.Data, span, m.Field)
		switch {
		case failure != nil:
			begun.files[k].failure = failure
		case fetch.IsData(value): // keep no copy of a long one until its batch is formed
			begun.files[k].inline = true
			begun.bytes += len(value) / 4 * 3
		default:
			begun.files[k].item = start(ctx, value)
		}
	}
	return begun
}

// fieldText returns the string that names a file.
func fieldText(line []byte, span jsonline.Span, field string) (string, *fault.Error) {
	if !span.Present() {
		return "", fault.NoMember.New("the record has no member %q", field).Set("fetch")
	}
	value := line[span.ValueStart:span.ValueEnd]
	if value[0] != '"' {
		return "", fault.NoMember.New("member %q is not a string", field)
	}
	return string(jsonline.AppendUnquoted(nil, value)), nil
}

// gather waits until the files of the next records have arrived, and returns how many of
// them make a batch: at most so many records, and so many bytes of lines and files unless it
// is a single one. It returns 0 at the end of the chunk.
func (f *fetching) gather(ctx context.Context, records, bytes int) (int, error) {
	n, size := 0, 0
	for n < records {
		if n == len(f.ready) {
			next, err := f.next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, err
			}
			f.ready = append(f.ready, next)
		}
		size += f.ready[n].bytes
		if n > 0 && size > bytes {
			break
		}
		n++
	}
	return n, nil
}

// claim makes the next n records ready, without waiting for their files.
func (f *fetching) claim(ctx context.Context, n int) error {
	for len(f.ready) < n {
		select {
		case r, more := <-f.records:
			if !more {
				return nil // take finds that records are missing
			}
			for _, one := range r.files {
				if one.item != nil { // the following records may need its place
					one.item.Hurry()
				}
			}
			f.ready = append(f.ready, r)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// arrive waits for the files of a record that was claimed, in a goroutine of its own, and
// passes them to then.
func (f *fetching) arrive(ctx context.Context, r *fetchRecord, line []byte, then func(files [][]byte, failure *fault.Error)) {
	f.waits.Go(func() {
		if _, err := f.await(ctx, *r); err != nil {
			return // the chunk has ended
		}
		then(f.files(ctx, r, line))
	})
}

// next returns the next record when its files have arrived.
func (f *fetching) next(ctx context.Context) (fetchRecord, error) {
	began := time.Now()
	defer func() { f.figures.waited(time.Since(began)) }()
	select {
	case r, more := <-f.records:
		if !more {
			return r, io.EOF
		}
		return f.await(ctx, r)
	case <-ctx.Done():
		return fetchRecord{}, ctx.Err()
	}
}

// await waits for the files of a record.
func (f *fetching) await(ctx context.Context, r fetchRecord) (fetchRecord, error) {
	for k := range r.files {
		one := &r.files[k]
		if one.item == nil {
			continue
		}
		if one.failure = one.item.Wait(ctx); one.failure != nil && one.failure.Kind == fault.Canceled {
			r.release()
			return r, one.failure
		}
		f.count(one)
		if one.failure == nil {
			r.bytes += len(one.item.Bytes())
		}
	}
	return r, nil
}

// count counts a file that has been fetched, or has failed.
func (f *fetching) count(one *fileOf) {
	f.figures.mu.Lock()
	defer f.figures.mu.Unlock()
	if one.item != nil {
		f.figures.retries += int64(one.item.Retries())
	}
	if one.failure != nil {
		f.figures.failures++
		return
	}
	f.figures.files++
	f.figures.bytes += int64(len(one.item.Bytes()))
}

// waited counts time in which no batch could be formed because files had not arrived.
func (f *fetchFigures) waited(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait += d
}

// take returns what is known about the records of a batch: as many as gather has returned,
// or fewer.
func (f *fetching) take(batch *input.Batch) ([]fetchRecord, error) {
	n := len(batch.Records)
	if n > len(f.ready) || f.ready[0].index != batch.Records[0].Index || f.ready[n-1].index != batch.Records[n-1].Index {
		return nil, fault.InputChanged.Of(fault.Storage, "input %s changed while it was being read", f.chunk.File)
	}
	taken := f.ready[:n:n]
	f.ready = f.ready[n:]
	return taken, nil
}

// files returns the files of a record, or why it has none.
func (f *fetching) files(ctx context.Context, r *fetchRecord, line []byte) ([][]byte, *fault.Error) {
	if !r.fetch { // the line is not valid, but need not be
		return nil, fault.NotJSON.Of(fault.Fetch, "the record is not valid JSON: its files are not known")
	}
	files := make([][]byte, len(r.files))
	for k := range r.files {
		one := &r.files[k]
		if one.inline && one.item == nil {
			f.decode(ctx, one, line, k)
		}
		if one.failure != nil {
			if one.item == nil {
				f.count(one)
			}
			return nil, one.failure
		}
		files[k] = one.item.Bytes()
	}
	return files, nil
}

// decode decodes a data: URI in a record.
func (f *fetching) decode(ctx context.Context, one *fileOf, line []byte, k int) {
	var info jsonline.Info
	if err := f.wanted.Scan(line, &info); err != nil {
		one.failure = fault.NotJSON.Of(fault.Fetch, "not valid JSON: %w", err)
		return
	}
	value, failure := fieldText(line, info.Spans[k+1], f.members[k].Field)
	if one.failure = failure; failure != nil {
		return
	}
	one.item = f.fetcher.Do(ctx, value)
	one.failure = one.item.Wait(ctx)
	f.count(one)
}

// one fetches the files of a single record in the calling goroutine.
func (f *fetching) one(ctx context.Context, r input.Record) error {
	begun, err := f.await(ctx, f.begin(ctx, r, f.fetcher.Do))
	if err == nil {
		f.ready = append(f.ready[:0], begun)
	}
	return err
}

// stop ends the scout and releases the files that no batch has.
func (f *fetching) stop() {
	f.waits.Wait()
	if f.done != nil {
		<-f.done
		for r := range f.records {
			r.release()
		}
	}
	for _, r := range f.ready {
		r.release()
	}
	f.ready = nil
}

// release frees the memory of the files.
func (r *fetchRecord) release() {
	for _, one := range r.files {
		if one.item != nil {
			one.item.Release()
		}
	}
}

// moveTo adds the figures since the last call to the statistics of a chunk.
func (f *fetching) moveTo(stats *wire.Stats) {
	if f == nil {
		return
	}
	f.figures.mu.Lock()
	defer f.figures.mu.Unlock()
	if stats.Figures == nil {
		stats.Figures = make(map[string]float64)
	}
	stats.Figures["fetched_files"] += float64(f.figures.files)
	stats.Figures["fetched_bytes"] += float64(f.figures.bytes)
	stats.Figures["fetch_failures"] += float64(f.figures.failures)
	stats.Figures["fetch_retries"] += float64(f.figures.retries)
	stats.Figures["fetch_wait_seconds"] += f.figures.wait.Seconds()
	f.figures.files, f.figures.bytes, f.figures.failures, f.figures.retries, f.figures.wait = 0, 0, 0, 0, 0
}
