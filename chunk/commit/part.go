package commit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

var newline = []byte("\n")

// Two more files of a part in a job with columns.
const (
	indexFile  = chunk.PartFiles + iota // the length of each line, and whether it has values
	valuesFile                          // of the columns
	partFiles
)

// suffixes end the names of a part's files.
var suffixes = [partFiles]string{".out", ".err", ".failures", ".rows", ".cols"}

// Part is the result of a segment while it is being written.
type Part struct {
	options PartOptions
	store   store
	files   [partFiles]partFile
	scratch []byte
	lines   int64 // of the results
	tally   chunk.Tally
}

// PartOptions say how to write a part.
type PartOptions struct {
	// Path is the prefix of its file names. It includes the attempt, so that two attempts
	// never write to the same file.
	Path string
	// Chunk is the chunk whose records, or first records, the part holds.
	Chunk chunk.Chunk
	// Store is how it keeps outcomes; the zero value is chunk.StoreLines.
	Store chunk.Store
	// ErrorsApart writes failed records to a separate file.
	ErrorsApart bool
	// Rows: the job has columns. Each line of the results has an entry in an index, and those
	// of results have values.
	Rows bool
	// Step and Device are recorded in marks and failures.
	Step   string
	Device string
}

// Outcome is what became of a record: it succeeded, was dropped, or failed.
type Outcome struct {
	Record input.Record
	// Lines are the results, each with its newline; Values those of their columns. Lines of a
	// table are its rows, and Values their entries of the index.
	Lines, Values []byte
	// Run is how many consecutive records Lines hold, one line each; 0 for those of Record alone.
	Run int
	// Dropped: the record has no result.
	Dropped bool
	// Fault is why the record failed. One that had a mark in the input (fault.Upstream) stays
	// as it is.
	Fault *fault.Error
	// Failure describes a failed record as an earlier part did, in place of Fault.
	Failure *record.Failure
}

// NewPart begins a part. Its files are created on their first write.
func NewPart(options PartOptions) *Part {
	p := &Part{options: options, store: stores[options.Store]}
	for i, suffix := range suffixes {
		p.files[i].path = options.Path + suffix
	}
	return p
}

// Write writes the outcome of the next record, or of a run of records.
func (p *Part) Write(o Outcome) error {
	n := int64(max(o.Run, 1))
	p.tally.Records += n
	switch {
	case o.Failure != nil:
		return storage(p.fail(o.Record, *o.Failure))
	case o.Fault != nil:
		return storage(p.failBy(o.Record, o.Fault))
	case o.Dropped:
		p.tally.Dropped++
	default:
		p.tally.Succeeded += n
	}
	if p.store.framed {
		return storage(p.frame(len(o.Lines), o.Lines, o.Values))
	}
	if o.Dropped {
		return nil
	}
	_, err := p.files[chunk.Results].Write(o.Lines)
	values := &p.files[valuesFile]
	if p.store.rows {
		values = &p.files[indexFile]
	}
	if err == nil && len(o.Values) > 0 {
		_, err = values.Write(o.Values)
	}
	switch {
	case err != nil:
	case p.store.rows:
		p.lines += columns.Entries(o.Values)
	case p.options.Rows:
		err = p.addEntries(o.Lines)
	case o.Run > 0:
		p.lines += n
	default:
		p.lines += int64(bytes.Count(o.Lines, newline))
	}
	return storage(err)
}

// addEntries adds lines with values to the index.
func (p *Part) addEntries(lines []byte) error {
	p.scratch = p.scratch[:0]
	for len(lines) > 0 {
		length := bytes.IndexByte(lines, '\n') + 1
		lines = lines[length:]
		p.lines++
		p.scratch = columns.AppendEntry(p.scratch, int64(length), true)
	}
	_, err := p.files[indexFile].Write(p.scratch)
	return err
}

// failBy writes a record that failed for this reason.
func (p *Part) failBy(r input.Record, e *fault.Error) error {
	var replaced string // the mark it had in the input
	if e.Kind == fault.Upstream {
		e = passed(r.Data)
	} else {
		e, replaced = e.Bounded(), string(record.MarkOf(r.Data))
	}
	described := *e
	described.Step = cmp.Or(e.Step, p.options.Step) // the step of a chain that reported it, or the kernel
	if p.store.framed {
		if err := p.frameFailed(r, described); err != nil {
			return err
		}
	}
	from := p.options.Chunk.Origin(r.Line)
	return p.fail(r, record.Failure{
		Record: r.Index, Line: from.Line, Rows: from.Row, File: cmp.Or(from.File, p.options.Chunk.File), Source: from.File, Offset: r.Offset,
		Length: int64(len(r.Data)), CRC32C: chunk.Checksum(r.Data),
		Kind: e.Kind, Message: e.Message, Code: e.Code, Value: e.Value, Step: described.Step, Detail: e.Detail, Device: p.options.Device, Replaced: replaced,
	})
}

// fail writes a failed record where the store keeps it, and a line of failures.jsonl.
func (p *Part) fail(r input.Record, f record.Failure) error {
	f.At = p.position()
	if err := p.keep(Failed{r.Data, f}); err != nil {
		return err
	}
	f.Size = p.position() - f.At
	return p.describe(f)
}

// describe counts a failed record and writes its line of failures.jsonl.
func (p *Part) describe(f record.Failure) error {
	p.tally.Failed++
	p.tally.Add(chunk.FailureTally(f.Kind.String(), chunk.KindStats{
		Example: f.Message, Detail: f.Detail, Code: string(f.Code), Value: f.Value, Line: f.Line, Rows: f.Rows, File: f.Source, Record: f.Record,
	}))
	line, err := f.AppendLine(nil)
	if err == nil {
		_, err = p.files[chunk.Failures].Write(line)
	}
	return err
}

// passed is the fault of a record that had a mark in the input.
func passed(line []byte) *fault.Error {
	if message := record.MessageOf(record.MarkOf(line)); message != "" {
		return fault.EarlierError.New("the record already has an _error in the input: %s", message).Bounded()
	}
	return fault.EarlierError.New("the record already has an _error in the input")
}

// keep writes a failed record to the file of failed records, and its placeholder to the
// results.
func (p *Part) keep(f Failed) error {
	apart, placed := p.store.keeps(p.options.ErrorsApart)
	if apart {
		if err := f.writeLine(&p.files[chunk.FailedRecords]); err != nil {
			return err
		}
	}
	if !placed {
		return nil
	}
	before := p.files[chunk.Results].Sum.Bytes
	p.lines++
	if err := p.store.placeholder(f, &p.files[chunk.Results]); err != nil || !p.options.Rows {
		return err
	}
	p.scratch = columns.AppendEntry(p.scratch[:0], p.files[chunk.Results].Sum.Bytes-before, false)
	_, err := p.files[indexFile].Write(p.scratch)
	return err
}

// position returns where the results end: in bytes, or in rows of a table.
func (p *Part) position() int64 {
	if p.store.rows {
		return p.lines
	}
	return p.files[chunk.Results].Sum.Bytes
}

// Counts returns the counts of what has been written.
func (p *Part) Counts() chunk.Counts { return p.tally.Counts }

// Close closes the part and returns its segment. rest is what remains of the chunk after
// it.
func (p *Part) Close(rest chunk.Chunk) (chunk.Segment, error) {
	c := p.options.Chunk
	s := chunk.Segment{
		First: c.First, Start: c.Start(), Next: rest.Start(),
		Part: filepath.Base(p.options.Path), Lines: p.lines, Inner: c.Following > 0 || rest.Records > 0, Tally: p.tally,
	}
	var failed error
	for i := range p.files {
		failed = cmp.Or(failed, p.files[i].Close(false)) // report only the first error
	}
	for i := range s.Files {
		s.Files[i] = p.files[i].Sum
	}
	if p.options.Rows && !p.store.framed {
		s.Columns = &chunk.PartColumns{Index: p.files[indexFile].Sum, Values: p.files[valuesFile].Sum}
	}
	return s, storage(failed)
}

// Discard deletes the part.
func (p *Part) Discard() {
	_, _ = p.Close(chunk.Chunk{})
	RemovePart(p.options.Path)
}

// RemovePart deletes the files of a part.
func RemovePart(path string) {
	for _, suffix := range suffixes {
		_ = os.Remove(path + suffix)
	}
}

// EarlySuffix ends the names of logs in which workers keep answers before they are
// committed; see worker/early.
const EarlySuffix = ".early"

// HasEarly reports whether a folder of parts has such logs.
func HasEarly(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return filepath.Ext(entry.Name()) == EarlySuffix })
}

// removeCommitted deletes a part that is in the output, and the log of its answers.
func removeCommitted(path string) {
	RemovePart(path)
	_ = os.Remove(path + EarlySuffix)
}

// checkPart reads a part and returns an error if it does not match its segment.
func checkPart(dir string, s chunk.Segment) error {
	want := s.Files[:]
	if s.Columns != nil {
		want = append(want, s.Columns.Index, s.Columns.Values)
	}
	for i := range want {
		path := filepath.Join(dir, s.Part+suffixes[i])
		sum, err := chunk.SumFile(context.Background(), path)
		if err == nil && sum != want[i] {
			err = fmt.Errorf("%s does not match its recorded size and checksum", path)
		}
		if err != nil && (want[i].Bytes > 0 || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// storage classifies a write error.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return fault.JobFiles.New("write part: %w", err)
}

// partFile is a file that is created on its first write.
type partFile struct {
	path string
	input.WrittenFile
}

func (s *partFile) Write(p []byte) (int, error) {
	if !s.Created() {
		if err := s.Create(s.path); err != nil {
			return 0, err
		}
	}
	return s.WrittenFile.Write(p)
}
