package source

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Reading is how a job reads its input.
type Reading struct {
	input.Options
	// Cut is how the input is split; see NewCut.
	Cut input.Cut
	// Window is where the records of an input are that is one plain file, and Counts are the
	// numbers of records in the files of any other; nil if unknown.
	Window *chunk.Chunk
	Counts []int64
	// Decoding is how files are decoded, but for what a file decides itself.
	Decoding format.Options
	// Log is the file that describes the chunks, "" for none. From Forget on, if that is set, its
	// chunks no longer count.
	Log    string
	Forget *int64
	// Was are the files that an earlier run has read, and Done is the number behind the last
	// record that it has computed; nil and 0 for none.
	Was  []State
	Done int64
	// Changed completes the fault of an input that has changed.
	Changed func(*fault.Error) *fault.Error
	// Notice gets lines for the user.
	Notice func(text string)
}

// Source is an open input.
type Source struct {
	*input.Source
	inputs   *Inputs
	reading  Reading
	log      *input.Log
	ranges   []fileRange // the files of each section
	reported map[string]bool
}

// Open starts to read the input.
func (i *Inputs) Open(r Reading) (_ *Source, err error) {
	s := &Source{inputs: i, reading: r, ranges: i.bundles(r.Cut.BundleBytes), reported: make(map[string]bool)}
	defer func() {
		if err != nil {
			_ = s.log.Close()
		}
	}()
	if r.Log != "" {
		if s.log, err = input.OpenLog(r.Log); err != nil {
			return nil, err
		}
		if r.Forget != nil {
			if err := s.log.Forget(*r.Forget); err != nil {
				return nil, err
			}
		}
		if i.Streams() && !s.log.Covers(r.Done) {
			return nil, fault.JobDamaged.New("the log of what the job has read of its input is incomplete, so the input cannot be compared")
		}
	}
	if !r.Keep {
		_ = os.RemoveAll(r.Dir) // a killed run may have left it
	}
	if r.Window != nil {
		s.reading.Limits = input.Limits{}
	}
	options := s.reading.Options
	if !i.Streams() { // a file does not wait
		options.Flush = 0
	}
	if r.Decoding.Bytes != nil {
		options.Blobs = len(r.Decoding.Bytes.Beside)
	}
	options.Log, options.ChunkRecords, options.LeastBytes, options.ChunkBytes = s.log, r.Cut.ChunkRecords, r.Cut.LeastBytes, r.Cut.ChunkBytes
	s.Source, err = input.Open(s.sections(), options)
	return s, err
}

// Close frees all resources. No chunk may be read afterwards. Nothing is open if s is nil.
func (s *Source) Close() error {
	if s == nil {
		return nil
	}
	return cmp.Or(s.Source.Close(), s.log.Close())
}

// The bounds of a chunk of a plain file, unless the user chose to split by bytes.
const (
	leastChunkBytes = 64 << 10
	mostChunkBytes  = 256 << 20
)

// mostLeastBytes limits how much the first record of a chunk waits for: workers get it with the chunk.
const mostLeastBytes = 8 << 20

// NewCut returns how to split an input that is not counted into about this number of chunks. Those of
// decoded files hold a multiple of step records, or, if records is not 0, that number. A stream does
// not wait for more than one step.
func (i *Inputs) NewCut(records, step int64, chunks int, split input.Split) input.Cut {
	var plain, decoded int64
	for _, file := range i.Files {
		switch {
		case file.isPlain():
			plain += file.info.Size()
		case file.info != nil:
			decoded += file.info.Size()
		}
	}
	least := int64(leastChunkBytes)
	if split == input.SplitBytes {
		least = 1
	}
	bytes := min(max(chunk.CeilDiv(plain, int64(max(chunks, 1))), least), mostChunkBytes)
	cut := input.Cut{ChunkRecords: records, ChunkBytes: bytes, BundleBytes: bundleBytes}
	if records == 0 {
		cut.ChunkRecords, cut.LeastBytes = step, min(chunk.CeilDiv(decoded, int64(max(chunks, 1))), mostLeastBytes)
	}
	return cut
}

// sections returns the inputs as what is to be read.
func (s *Source) sections() []input.Section {
	r, limits := s.reading, s.reading.Limits
	if len(r.Counts) != len(s.inputs.Files) {
		r.Counts = nil
	}
	sections := make([]input.Section, len(s.ranges))
	var first int64 // of the section
	for i, files := range s.ranges {
		whole, records := limits == (input.Limits{}), int64(0)
		skips := make([]int64, files.to-files.from)
		if r.Counts != nil {
			for i, n := range r.Counts[files.from:files.to] {
				skips[i] = max(0, limits.Offset-first-records)
				records += n
			}
			whole = whole || limits.Select(first, records)
			first += records
		}
		sections[i] = s.section(files, skips, whole)
		sections[i].Counted, sections[i].Records = r.Counts != nil, records
	}
	return sections
}

// section returns some files as a section. skips are how many records of each are not used at
// its start. whole: all of their records are used.
func (s *Source) section(r fileRange, skips []int64, whole bool) input.Section {
	read := new(atomic.Int64)
	one := input.Section{Same: true, Read: read.Load}
	for i, file := range s.inputs.Files[r.from:r.to] {
		options := s.reading.Decoding
		options.Skip = skips[i]
		open := file.opener(options, read)
		if r.bundle() {
			open = s.compared(file, open)
		}
		one.Files = append(one.Files, input.SectionFile{Name: file.Name, Number: r.from + i, Open: open})
		one.Same = one.Same && s.unchanged(r.from+i)
		if one.Once = file.stream != nil; !one.Once {
			one.Size += file.info.Size()
		}
	}
	file, counted := s.inputs.Files[r.from], s.reading.Cut.Counted()
	switch {
	case file.Name == expand.Stdin:
		one.Files[0].Name = ""
	case !r.bundle() && (counted || whole && file.isPlain()):
		one.Path, one.Read = file.Name, nil
	}
	if one.Path != "" && s.inputs.plain() != nil {
		one.Files[0].Name, one.Window = "", s.reading.Window
	}
	if counted {
		cut := s.reading.Cut
		cut.Chunks = slices.Clone(cut.Chunks)
		for i := range cut.Chunks { // the earlier run may have been started in another folder
			cut.Chunks[i].File = file.Name
		}
		one.Cut = &cut
	}
	return one
}

// compared opens a file of a bundle, which is compared when it has been read.
func (s *Source) compared(file File, open func(context.Context) (format.Lines, error)) func(context.Context) (format.Lines, error) {
	return func(ctx context.Context) (format.Lines, error) {
		lines, err := open(ctx)
		if err == nil {
			lines.ReadCloser = &checkedLines{ReadCloser: lines.ReadCloser, source: s, file: file}
		}
		return lines, err
	}
}

// unchanged reports whether the earlier run has read the same file.
func (s *Source) unchanged(i int) bool {
	was := s.reading.Was
	if len(was) != len(s.inputs.Files) {
		return false
	}
	file := s.inputs.Files[i]
	old, now := was[i], file.state()
	return old.Path == now.Path && old.Size == now.Size && old.Sum == now.Sum && (old.sameTimes(now) || !file.isPlain())
}

// Small files are read in bundles: their records share chunks and thereby batches, and a
// folder of a thousand files with a record each is computed in full batches.
const (
	// bundleBytes is the size of a bundle; a file is small if it has a sixteenth of that.
	bundleBytes = 16 << 20
	smallShare  = 16
	// bundleFiles is the most files of a bundle.
	bundleFiles = 4096
)

// fileRange is some consecutive inputs.
type fileRange struct{ from, to int }

// bundle reports whether the inputs are small files that are read as one section.
func (r fileRange) bundle() bool { return r.to-r.from > 1 }

// bundles divides the inputs into sections: bundles of small files, and all others alone. It
// depends on the order and sizes of the files alone, which a resumed job compares. size is
// that of a bundle, 0 for none.
func (i *Inputs) bundles(size int64) (all []fileRange) {
	small := func(f File) bool { return f.stream == nil && f.info.Size() <= size/smallShare && size > 0 }
	var bytes int64
	for k, file := range i.Files {
		last := len(all) - 1
		if last >= 0 && small(file) && small(i.Files[k-1]) && file.kind.Rows() == i.Files[k-1].kind.Rows() &&
			bytes < size && k-all[last].from < bundleFiles {
			all[last].to = k + 1
		} else {
			all = append(all, fileRange{k, k + 1})
			bytes = 0
		}
		if file.stream == nil {
			bytes += file.info.Size()
		}
	}
	return all
}
