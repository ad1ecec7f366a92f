package worker

import (
	"context"
	"errors"
	"io"
	"slices"
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
	names   []string         // of members, then of bytes
	blobs   *input.Blobs     // values beside the lines
	read    []int            // which of them the kernel reads
	wanted  *jsonline.Wanted // the mark, and the fields of members
	chunk   chunk.Chunk
	options wire.Records

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
	item    *fetch.Item  // nil if the record names none
	null    bool         // its value is null
	failure *fault.Error // why the record has no file
}

// fetchFigures are counts for metrics, by name.
type fetchFigures struct {
	mu     sync.Mutex
	counts map[string]float64
}

// add adds to a count.
func (f *fetchFigures) add(name string, n float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

// reset returns the counts since the last call.
func (f *fetchFigures) reset() map[string]float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.counts
	f.counts = map[string]float64{"fetched_files": 0, "fetched_bytes": 0, "fetch_failures": 0, "fetch_retries": 0, "fetch_wait_seconds": 0}
	return taken
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
func newFetching(fetcher *fetch.Fetcher, setup wire.Setup, c chunk.Chunk) *fetching {
	if fetcher == nil {
		return nil
	}
	f := &fetching{
		fetcher: fetcher, members: setup.Fetch.Members, blobs: input.NewBlobs(c, len(setup.Records.Bytes)),
		options: setup.Records, chunk: c,
	}
	fields := []string{record.ErrorMember}
	for _, m := range f.members {
		f.names, fields = append(f.names, m.Name), append(fields, m.Field)
	}
	for _, name := range setup.Records.BytesRead {
		f.names, f.read = append(f.names, name), append(f.read, slices.Index(setup.Records.Bytes, name))
	}
	f.wanted = jsonline.Want(fields...)
	f.figures.reset()
	f.records = make(chan fetchRecord, max(4*fetcher.Concurrency(), 2*setup.Records.BatchSize))
	return f
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
func (f *fetching) begin(ctx context.Context, r input.Record, start func(context.Context, fetch.File) *fetch.Item) fetchRecord {
	begun := fetchRecord{index: r.Index, bytes: len(r.Data)}
	var info jsonline.Info
	if r.TooLong || f.wanted.Scan(r.Data, &info) != nil || !f.options.Reprocess && info.Object && isMark(r.Data, info.Spans[0]) {
		return begun
	}
	begun.fetch, begun.files = true, make([]fileOf, len(f.names))
	for k, m := range f.members {
		var span jsonline.Span
		if info.Object {
			span = info.Spans[k+1]
		}
		value, failure := fieldText(r.Data, span, m.Field)
		if begun.files[k].failure = failure; failure == nil {
			begun.files[k].item = start(ctx, fetch.Named(value))
		}
	}
	f.beginBlobs(ctx, r, begun.files[len(f.members):], start)
	return begun
}

// beginBlobs begins to read the values that a record has beside its line.
func (f *fetching) beginBlobs(ctx context.Context, r input.Record, to []fileOf, start func(context.Context, fetch.File) *fetch.Item) {
	if len(to) == 0 {
		return
	}
	blobs, err := f.blobs.Of(r.Index)
	for k := range to {
		var blob input.BlobAt
		if err == nil {
			blob = blobs[f.read[k]]
		}
		switch {
		case err != nil:
			to[k].failure = fault.As(err)
		case blob.Kind.HasBytes():
			to[k].item = start(ctx, fetch.File{Part: io.NewSectionReader(f.blobs, blob.Data.Offset, blob.Data.Length)})
		case blob.Path.Length > 0:
			path := make([]byte, blob.Path.Length)
			if err := f.blobs.ReadSpan(path, blob.Path); err != nil {
				to[k].failure = fault.As(err)
				continue
			}
			to[k].item = start(ctx, fetch.Named(string(path)))
		default:
			to[k].null = true
		}
	}
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
				return nil // filesOf finds that records are missing
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
func (f *fetching) arrive(ctx context.Context, r *fetchRecord, then func(files [][]byte, failure *fault.Error)) {
	f.waits.Go(func() {
		if _, err := f.await(ctx, *r); err != nil {
			return // the chunk has ended
		}
		then(r.contents())
	})
}

// next returns the next record when its files have arrived.
func (f *fetching) next(ctx context.Context) (fetchRecord, error) {
	began := time.Now()
	defer func() { f.figures.add("fetch_wait_seconds", time.Since(began).Seconds()) }()
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

// await waits for the files of a record, and counts them.
func (f *fetching) await(ctx context.Context, r fetchRecord) (fetchRecord, error) {
	for k := range r.files {
		one := &r.files[k]
		if one.item != nil {
			if one.failure = one.item.Wait(ctx); one.failure != nil && one.failure.Kind == fault.Canceled {
				r.release()
				return r, one.failure
			}
			f.figures.add("fetch_retries", float64(one.item.Retries()))
		}
		switch {
		case one.failure != nil:
			f.figures.add("fetch_failures", 1)
			continue
		case one.null:
			continue
		}
		r.bytes += len(one.item.Bytes())
		f.figures.add("fetched_files", 1)
		f.figures.add("fetched_bytes", float64(len(one.item.Bytes())))
	}
	return r, nil
}

// filesOf returns what is known about the records of a batch: as many as gather has returned,
// or fewer.
func (f *fetching) filesOf(batch *input.Batch) ([]fetchRecord, error) {
	n := len(batch.Records)
	if n > len(f.ready) || f.ready[0].index != batch.Records[0].Index || f.ready[n-1].index != batch.Records[n-1].Index {
		return nil, fault.InputChanged.Of(fault.Storage, "input %s changed while it was being read", f.chunk.File)
	}
	taken := f.ready[:n:n]
	f.ready = f.ready[n:]
	return taken, nil
}

// contents returns the files of a record, or why it has none.
func (r *fetchRecord) contents() ([][]byte, *fault.Error) {
	if !r.fetch { // the line is not valid, but need not be
		return nil, fault.NotJSON.Of(fault.Fetch, "the record is not valid JSON: its files are not known")
	}
	files := make([][]byte, len(r.files))
	for k, one := range r.files {
		switch {
		case one.failure != nil:
			return nil, one.failure
		case !one.null:
			files[k] = one.item.Bytes()
			if files[k] == nil { // which would mean null
				files[k] = []byte{}
			}
		}
	}
	return files, nil
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
	_ = f.blobs.Close()
}

// release frees the memory of the files.
func (r *fetchRecord) release() {
	for _, one := range r.files {
		if one.item != nil {
			one.item.Release()
		}
	}
}
