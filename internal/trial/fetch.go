package trial

import (
	"cmp"
	"context"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/worker/fetch"
)

// fetchFiles fetches the files that records name, as a job would. A record whose file cannot
// be read does not reach the kernel. Relative paths begin in
// folder: the input's, or . for a stream.
func (s *Sample) fetchFiles(ctx context.Context, folder string) {
	if len(s.Fetch.Members)+len(s.bytes) == 0 {
		return
	}
	s.Fetch.Root = cmp.Or(s.Fetch.Root, folder)
	fetcher := fetch.New(fetch.Options{Fetch: s.Fetch})
	defer fetcher.Close()
	for i := range s.records {
		record := &s.records[i]
		if record.invalid != "" {
			continue
		}
		var err error
		if record.files, err = filesOf(ctx, fetcher, s.Fetch.Members, record.line); err == nil {
			err = record.addBlobs(ctx, fetcher, len(s.bytes))
		}
		if err != nil {
			record.invalid = err.Error()
		}
	}
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
		file, err := fetchFile(ctx, fetcher, value)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// fetchFile returns a file that a record names.
func fetchFile(ctx context.Context, fetcher *fetch.Fetcher, name string) ([]byte, error) {
	item := fetcher.Do(ctx, fetch.Named(name))
	if failure := item.Wait(ctx); failure != nil {
		return nil, failure
	}
	defer item.Release()
	return append([]byte{}, item.Bytes()...), nil
}

// addBlobs adds the values of bytes to the files of a record: nil for a null.
func (r *sampleRecord) addBlobs(ctx context.Context, fetcher *fetch.Fetcher, each int) error {
	for k := range each {
		var file []byte
		if k < len(r.blobs) {
			switch one := r.blobs[k]; {
			case one.Kind.HasBytes():
				file = append([]byte{}, one.Data...)
			case len(one.Path) > 0:
				var err error
				if file, err = fetchFile(ctx, fetcher, string(one.Path)); err != nil {
					return err
				}
			}
		}
		r.files = append(r.files, file)
	}
	return nil
}
