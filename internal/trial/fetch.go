package trial

import (
	"cmp"
	"context"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/fetch"
)

// fetched are the files of the records that are tried out.
type fetched struct {
	names []string
	files map[*byte][][]byte // by the first byte of a record's line
}

// fetchFiles fetches the files that records name, as a job would. A record whose file cannot
// be read does not reach the kernel. Relative paths begin in
// folder: the input's, or . for a stream.
func fetchFiles(ctx context.Context, settings orchestrator.Fetch, folder string, records []sampleRecord) *fetched {
	if len(settings.Members) == 0 {
		return nil
	}
	fetcher := fetch.New(fetch.Options{
		Root: cmp.Or(settings.Root, folder), MaxBytes: settings.MaxBytes, Concurrency: settings.Concurrency, PerHost: settings.PerHost,
		Timeout: settings.Timeout, Retries: settings.Retries, AllowPrivate: settings.AllowPrivate,
	})
	defer fetcher.Close()
	f := &fetched{files: make(map[*byte][][]byte)}
	for _, m := range settings.Members {
		f.names = append(f.names, m.Name)
	}
	for i := range records {
		if record := &records[i]; record.invalid == "" {
			files, err := filesOf(ctx, fetcher, settings.Members, record.line)
			if err != nil {
				record.invalid = err.Error()
			}
			f.files[&record.line[0]] = files
		}
	}
	return f
}

// filesOf fetches the files of one record.
func filesOf(ctx context.Context, fetcher *fetch.Fetcher, members []orchestrator.FetchMember, line []byte) (files [][]byte, err error) {
	for _, m := range members {
		value, found := "", false
		jsonline.Members(line, func(_ []byte, name string, text []byte) bool {
			if name == m.Field && len(text) > 0 && text[0] == '"' {
				value, found = string(jsonline.AppendUnquoted(nil, text)), true
			}
			return true
		})
		if !found {
			return nil, fault.NoMember.New("the record has no member %q that is a string", m.Field)
		}
		item := fetcher.Do(ctx, value)
		if failure := item.Wait(ctx); failure != nil {
			return nil, failure
		}
		files = append(files, append([]byte{}, item.Bytes()...))
		item.Release()
	}
	return files, nil
}

// batchOf returns records as a batch, with their files.
func (f *fetched) batchOf(lines [][]byte) plugins.Batch {
	batch := plugins.NewBatch(lines)
	if f == nil {
		return batch
	}
	var files [][]byte
	for _, line := range lines {
		files = append(files, f.files[&line[0]]...)
	}
	return batch.WithFetched(f.names, files)
}
