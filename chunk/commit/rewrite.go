package commit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Rewriter writes the results of a finished output again while some of them are replaced: the
// same records to the same parts, through the same units. It has no journal: if it is
// interrupted, the next one starts over.
type Rewriter struct {
	output  *Output
	options PartOptions
	part    *Part // collects what is not in units yet; nil if that is nothing
	made    int   // how many there were
	begun   bool  // the first part of the output
}

// rewriteBytes is how many bytes of results wait outside of units. It is a variable so that tests
// can lower it.
var rewriteBytes int64 = 64 << 20

// rewriteBlock is how many bytes of lines are taken over at a time. Their rows in arrays may be much
// longer.
const rewriteBlock = 16 << 10

// NewRewriter begins to write an output to the folder options.WorkDir. Its files keep their
// temporary names.
func NewRewriter(options Options, part PartOptions) (*Rewriter, error) {
	RemoveParts(filepath.Join(options.WorkDir, Temporary[chunk.Results])) // left by a killed attempt: they may be links
	if err := os.MkdirAll(filepath.Join(options.WorkDir, PartsDir), 0o700); err != nil {
		return nil, fault.WriteFailed.New("create output: %w", err)
	}
	o, err := Create(options)
	if err != nil {
		return nil, err
	}
	if options.Format.Table { // its row groups end where they did
		o.units.bytes, o.units.least = math.MaxInt64, math.MaxInt64
	}
	return &Rewriter{output: o, options: part}, nil
}

// Begin begins a part of the output with the records of an old one.
func (r *Rewriter) Begin(old ManifestPart) error {
	c, first := r.output.cutter, !r.begun
	if r.begun = true; !r.output.results.target.parts {
		return nil
	}
	next := ManifestPart{Name: old.Name, First: old.First, Records: old.Records}
	c.bytes = math.MaxInt64
	if first {
		c.parts[0] = next
		return nil
	}
	c.parts = append(c.parts, next)
	r.output.units.beginPart(next.Name)
	return r.output.land(true)
}

// Link takes over the part that was begun from a folder.
func (r *Rewriter) Link(old ManifestPart, from string) error {
	if err := r.Flush(); err != nil { // what stays in it
		return err
	}
	c, results := r.output.cutter, r.output.results
	results.target.close()
	path := filepath.Join(results.target.temporary, old.Name)
	_ = os.Remove(path)
	if err := LinkFile(filepath.Join(from, old.Name), path); err != nil {
		return storageOf(path, err)
	}
	c.parts[len(c.parts)-1] = old
	r.output.lines += old.Lines
	r.output.raw += old.Unencoded
	r.output.units.begun, r.output.units.fileEnded = true, true
	return nil
}

// Write writes the new outcome of a record.
func (r *Rewriter) Write(o Outcome) error {
	if err := r.open().Write(o); err != nil {
		return err
	}
	return r.flushFull()
}

// Keep describes a failed record that stays where it is, in a part of the output that is linked. Its
// position is that in the part.
func (r *Rewriter) Keep(f Failed) error {
	p := r.open()
	if apart, _ := p.store.keeps(p.options.ErrorsApart); apart {
		if err := f.writeLine(&p.files[chunk.FailedRecords]); err != nil {
			return storage(err)
		}
	}
	return storage(p.describe(f.Failure))
}

// open returns the part that collects results.
func (r *Rewriter) open() *Part {
	if r.part == nil {
		r.made++
		r.options.Path = filepath.Join(r.output.options.WorkDir, PartsDir, fmt.Sprint(r.made))
		r.part = NewPart(r.options)
	}
	return r.part
}

// Copy takes over size bytes of old lines, all that follow if size is negative. If the output has
// arrays, values returns the values of the next rows. It returns the number of bytes.
func (r *Rewriter) Copy(lines io.Reader, size int64, values func(rows int) ([]byte, error)) (copied int64, err error) {
	if size >= 0 {
		lines = io.LimitReader(lines, size)
	}
	var block []byte
	for ended := false; !ended; {
		block = slices.Grow(block, rewriteBlock)
		n, err := io.ReadFull(lines, block[len(block):cap(block)])
		block, copied = block[:len(block)+n], copied+int64(n)
		if ended = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !ended {
			return copied, err
		}
		end := bytes.LastIndexByte(block, '\n') + 1
		if end == 0 {
			continue
		}
		o := Outcome{Lines: block[:end], Run: bytes.Count(block[:end], newline)}
		if r.options.Rows {
			if o.Values, err = values(o.Run); err != nil {
				return copied, err
			}
		}
		if err := r.Write(o); err != nil {
			return copied, err
		}
		block = append(block[:0], block[end:]...)
	}
	if copied < size || len(block) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return copied, err
}

func (r *Rewriter) flushFull() error {
	if r.part.files[chunk.Results].Sum.Bytes+r.part.files[valuesFile].Sum.Bytes < rewriteBytes {
		return nil
	}
	return r.Flush()
}

// Flush moves what was written to units.
func (r *Rewriter) Flush() error {
	if r.part == nil {
		return nil
	}
	s, err := r.part.Close(chunk.Chunk{})
	if r.part = nil; err != nil {
		return err
	}
	s.Tally.Records = 0 // parts are begun with their number of records
	if err := r.output.append(s); err != nil {
		return err
	}
	return r.output.land(false)
}

// EndGroup ends the row group that the rows since the last one make up.
func (r *Rewriter) EndGroup() error {
	if err := r.Flush(); err != nil || len(r.output.units.open.rows) == 0 {
		return err
	}
	r.output.units.end()
	r.output.units.reach(r.output.head)
	return r.output.land(false)
}

// Group takes over an old row group as it is.
func (r *Rewriter) Group(data, meta []byte, rows int64) error {
	if err := r.EndGroup(); err != nil {
		return err
	}
	units := r.output.units
	u := units.newUnit()
	u.data, u.meta = [][]byte{data}, meta
	_, _ = u.sum.Write(data)
	close(u.done)
	units.queue = append(units.queue, step{unit: u})
	r.output.lines += rows
	r.output.cutter.add(chunk.Segment{Lines: rows})
	return r.output.land(false)
}

// EndPart ends the part that was begun.
func (r *Rewriter) EndPart() error {
	if err := r.EndGroup(); err != nil {
		return err
	}
	if r.output.units.endAll() {
		r.output.units.reach(r.output.head)
	}
	return r.output.land(true)
}

// Rewritten is a new output.
type Rewritten struct {
	// Tally counts its failed records.
	Tally chunk.Tally
	// Parts are the parts of the output, with the same records as the old ones; a file is one part.
	Parts []ManifestPart
	// ArraySums are the checksums of the new arrays.
	ArraySums []chunk.FileSum
}

// Finish makes the new files durable.
func (r *Rewriter) Finish() (w Rewritten, err error) {
	o := r.output
	if err := o.seal(); err != nil {
		return w, err
	}
	if err := o.sync(); err != nil {
		return w, err
	}
	w = Rewritten{Tally: o.head.Tally, Parts: o.cutter.parts, ArraySums: o.ArraySums()}
	if o.results.target.parts {
		err = files.SyncDir(o.results.target.temporary)
	}
	if err == nil {
		err = files.SyncDir(o.options.WorkDir)
	}
	return w, storageOf(o.options.WorkDir, err)
}

// Close closes the files.
func (r *Rewriter) Close() {
	if r.part != nil {
		r.part.Discard()
	}
	r.output.close()
}
