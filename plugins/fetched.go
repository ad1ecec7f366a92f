package plugins

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// Fetched returns the file that was fetched for record i under the given name, and whether
// files were fetched under that name at all (--fetch NAME=FIELD, or a column of bytes). The file
// is nil if the column's value is null. A record whose file could not be fetched does not reach the
// kernel. The kernel must not modify the file, nor use it after the results are complete.
func (b Batch) Fetched(i int, name string) (file []byte, found bool) {
	k := slices.Index(b.fetched, name)
	if k < 0 {
		return nil, false
	}
	return b.files[i*len(b.fetched)+k], true
}

// FetchedNames returns the names under which files were fetched.
func (b Batch) FetchedNames() []string { return b.fetched }

// WithFetched returns the batch with files: for each record, one for each name. It is for
// callers of a kernel. It panics if the files do not fit the records.
func (b Batch) WithFetched(names []string, files [][]byte) Batch {
	if len(files) != len(names)*len(b.records) {
		panic(fmt.Sprintf("a batch of %d records with %d names has %d files", len(b.records), len(names), len(files)))
	}
	b.fetched, b.files = names, files
	return b
}

// withFetched adds the files of a message, without copying them.
func (b Batch) withFetched(list []*kernelpb.Fetched, a *protocol.Arena) (Batch, error) {
	names, all := make([]string, len(list)), make([][]byte, len(list)*len(b.records))
	for k, message := range list {
		files, err := protocol.UnpackInPlace(message.GetFiles(), a)
		if err != nil {
			return b, err
		}
		if len(files) != len(b.records) {
			return b, fmt.Errorf("a batch of %d records has %d files", len(b.records), len(files))
		}
		for i, file := range files {
			if file == nil { // which means that it is null
				files[i] = []byte{}
			}
		}
		for _, i := range message.GetNulls() {
			if int(i) >= len(files) {
				return b, fmt.Errorf("a batch of %d records has no record %d", len(files), i)
			}
			files[i] = nil
		}
		names[k] = message.GetName()
		for i, file := range files {
			all[i*len(list)+k] = file
		}
	}
	return b.WithFetched(names, all), nil
}
