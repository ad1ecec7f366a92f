package plugins

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// Fetched returns the file that was fetched for record i under the given name, and whether
// files were fetched under that name at all (--fetch NAME=FIELD). A record whose file could
// not be fetched does not reach the kernel. The kernel must not modify the file, nor use it
// after the results are complete.
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

// packFetched describes the files of a batch. It does not copy files that are already in
// the arena.
func packFetched(c *carrier, batch Batch) []*kernelpb.Fetched {
	list := make([]*kernelpb.Fetched, len(batch.fetched))
	files := make([][]byte, len(batch.records))
	for k, name := range batch.fetched {
		for i := range files {
			files[i] = batch.files[i*len(batch.fetched)+k]
		}
		list[k] = &kernelpb.Fetched{Name: valid(name)}
		if !filesInPlace(c, list[k], files) {
			list[k].Files = packBlock(c, files)
		}
	}
	return list
}

// filesInPlace describes files that are in this side's half of the arena. It returns false
// if one is not.
func filesInPlace(c *carrier, message *kernelpb.Fetched, files [][]byte) bool {
	offsets, lengths := make([]uint64, len(files)), make([]uint32, len(files))
	total := 0
	for i, file := range files {
		if len(file) == 0 {
			continue
		}
		at, ok := c.arena.offsetOf(file)
		if !ok {
			return false
		}
		offsets[i], lengths[i] = at, uint32(len(file))
		total += len(file)
	}
	c.fits(total)
	message.Offsets, message.Lengths = offsets, lengths
	return true
}

// withFetched adds the files of a message, without copying them.
func (b Batch) withFetched(list []*kernelpb.Fetched, a *arena) (Batch, error) {
	if len(list) == 0 {
		return b, nil
	}
	b.fetched, b.files = make([]string, len(list)), make([][]byte, len(list)*len(b.records))
	for k, message := range list {
		files, err := unpackFiles(message, a)
		if err != nil {
			return b, err
		}
		if len(files) != len(b.records) {
			return b, fmt.Errorf("a batch of %d records has %d files", len(b.records), len(files))
		}
		b.fetched[k] = message.GetName()
		for i, file := range files {
			b.files[i*len(list)+k] = file
		}
	}
	return b, nil
}

func unpackFiles(message *kernelpb.Fetched, a *arena) ([][]byte, error) {
	offsets, lengths := message.GetOffsets(), message.GetLengths()
	if message.GetFiles() != nil {
		return unpackInPlace(message.GetFiles(), a)
	}
	if len(offsets) != len(lengths) {
		return nil, fmt.Errorf("%d files have %d lengths", len(offsets), len(lengths))
	}
	files := make([][]byte, len(offsets))
	for i, length := range lengths {
		if length == 0 {
			files[i] = []byte{}
			continue
		}
		var err error
		if files[i], err = a.at(offsets[i], uint64(length)); err != nil {
			return nil, err
		}
	}
	return files, nil
}
