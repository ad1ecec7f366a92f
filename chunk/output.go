package chunk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// Output puts segments back together in input order, and keeps a journal of it.
// Segments that come early wait as parts on disk, so its memory does not grow
// with the input.
//
// It is used by one goroutine at a time, but for TakeSpare.
type Output struct {
	options OutputOptions
	next    int64          // the record that the next segment appended begins with
	place   Place          // where that stands
	sizes   [streams]int64 // of the targets, up to next: an append that fails leaves them longer
	waiting map[int64]Segment
	tally   Tally
	sum     FileSum // of the results up to next, as their writers took it
	targets [streams]target
	cutter  *partCutter // of a folder; nil for a file
	failed  error       // an append failed: nothing can be appended behind it
	closed  bool

	// What was appended since the last durable point.
	parts     []Segment
	bytes     int64
	durableAt time.Time
	point     *point // the one being made, or nil

	spares    spares
	writeback writeback
}

// OutputOptions say where the output goes.
type OutputOptions struct {
	// Path is the output: a file's name, or - for Stdout, or the name of a folder
	// if PartBytes is set.
	Path string
	// PartBytes makes of the output a folder of parts of at least so many bytes.
	PartBytes int64
	// Errors is where failed records go; empty means their place in Path.
	Errors string
	// Replace lets both take the place of what has their names when they are
	// finished.
	Replace bool
	// WorkDir is the job folder. What is not finished is written there, and gets
	// its name by a rename when it is.
	WorkDir string
	// First is the number of the first record.
	First int64
	// Stdout is where - leads; nil means os.Stdout.
	Stdout io.Writer
	// Stop, when closed, ends the wait for somebody to read an output that is a
	// pipe; nil waits for ever.
	Stop <-chan struct{}
	// Journal takes what must survive; nil for an output that cannot be gone on
	// with, a stream.
	Journal *Journal
	// NoDurable leaves the durable points out, to measure what they cost.
	NoDurable bool
	// DurableEvery is how often there is one; default 5s.
	DurableEvery time.Duration
}

// FailuresFile is the name, in the job folder, of what is known of each failed
// record; PartsDir that of the folder where parts wait.
const (
	FailuresFile = "failures.jsonl"
	PartsDir     = "parts"
)

// replaces: what is in the job folder is nobody else's.
func (o OutputOptions) replaces(stream int) bool { return o.Replace || stream == failures }

// paths are the files of the output, and their names until they are finished.
func (o OutputOptions) paths() (final, temporary [streams]string) {
	final = [streams]string{o.Path, o.Errors, filepath.Join(o.WorkDir, FailuresFile)}
	for i, name := range [streams]string{"output.partial", "errors.partial", "failures.partial"} {
		temporary[i] = filepath.Join(o.WorkDir, name)
	}
	return final, temporary
}

// CreateOutput begins an output.
func CreateOutput(options OutputOptions) (*Output, error) {
	return openOutput(options, State{Durable: Durable{Next: options.First}})
}

// ResumeOutput goes on with the output of a job that was interrupted: what was
// not durable is cut off, and the parts that are there are appended again. The
// parts must have been checked.
func ResumeOutput(options OutputOptions, state State) (*Output, error) {
	state.Durable.Next = max(state.Durable.Next, options.First) // before the first durable point it is not known
	o, err := openOutput(options, state)
	if err != nil {
		return nil, err
	}
	for _, s := range state.Segments {
		if err := o.take(s); err != nil {
			o.Abandon()
			return nil, err
		}
	}
	return o, nil
}

func openOutput(options OutputOptions, state State) (*Output, error) {
	o := &Output{
		options: options, next: state.Durable.Next, place: state.Durable.Place, sizes: state.Durable.Sizes,
		tally: state.Durable.Tally.clone(), sum: state.ResultSum(), waiting: make(map[int64]Segment), durableAt: time.Now(),
	}
	if options.PartBytes > 0 {
		o.cutter = cutParts(options.PartBytes, options.First, runs(state.Output))
	}
	final, temporary := options.paths()
	for i := range o.targets {
		if final[i] == "" {
			continue
		}
		var err error
		if i == results && o.cutter != nil {
			o.targets[i], err = openPartFolder(final[i], temporary[i], o.cutter.parts)
		} else {
			o.targets[i], err = openTarget(final[i], temporary[i], options, state.Durable.Sizes[i], modes[i])
		}
		if err != nil {
			o.Abandon()
			return nil, err
		}
	}
	if options.Journal != nil { // it will speak of files that must be there
		if err := syncDir(options.WorkDir); err != nil {
			o.Abandon()
			return nil, fault.New(fault.Storage, "create output: %w", err)
		}
	}
	return o, nil
}

// Commit takes a finished segment: it is journalled, and appended, with those
// that waited for it, as soon as everything before it is there. One that cannot
// be appended, since the disk is full, is journalled all the same, if it can be:
// it need not be computed again.
func (o *Output) Commit(s Segment) error {
	if s.Tally.Records == 0 { // it has no files, and would take the place of the one that begins there
		return nil
	}
	crash.Point("part-written")
	if o.options.Journal != nil {
		if err := o.options.Journal.Append(Entry{Segment: &s}); err != nil {
			return err
		}
	}
	crash.Point("journalled")
	return o.take(s)
}

// take appends a segment that is in the journal, when its turn comes.
func (o *Output) take(s Segment) error {
	if o.failed != nil {
		return o.failed
	}
	o.waiting[s.First] = s
	for {
		s, ok := o.waiting[o.next]
		if !ok {
			return o.Checkpoint(false)
		}
		if o.failed = o.append(s); o.failed != nil {
			return o.failed
		}
		crash.Point("appended")
		// Also where many have waited for one: what is in the output twice, as
		// parts and as itself, must not grow with them.
		if err := o.Checkpoint(false); err != nil {
			return err
		}
	}
}

// append writes a segment behind what is there: all of it, or it does not count.
func (o *Output) append(s Segment) error {
	path := o.partPath(s)
	base := o.targets[results].size // what the part's failures count from
	if o.cutter != nil && o.cutter.next(s.First) {
		if err := o.settle(); err != nil { // it is about the part that ends
			return err
		}
		if err := o.targets[results].nextPart(o.cutter.last().Name); err != nil {
			return err
		}
		crash.Point("part-begun")
	}
	for i := range o.targets {
		copyPart := o.targets[i].copyPart
		if i == failures {
			copyPart = func(part *os.File, _ int64) (int64, error) { return moveFailures(o.targets[i].writer, part, base) }
		}
		if err := o.targets[i].appendFile(path+suffixes[i], s.Files[i].Bytes, copyPart); err != nil {
			return err
		}
		o.writeback.begin(&o.targets[i], s.Files[i].Bytes)
	}
	for i := range o.targets {
		o.sizes[i] = o.targets[i].size
		o.bytes += s.Files[i].Bytes
	}
	delete(o.waiting, s.First)
	o.next, o.place = s.end(), s.Next
	o.tally.Add(s.Tally)
	o.sum = o.sum.join(s.Files[results])
	if o.cutter != nil {
		o.cutter.add(s.run())
	}
	if o.options.Journal == nil {
		o.release(s)
	} else {
		o.parts = append(o.parts, s)
	}
	return nil
}

// release lets go of the part of a segment that is in the output for good: the file
// of its results is spare, the others are small.
func (o *Output) release(s Segment) {
	path := o.partPath(s)
	for i, suffix := range suffixes {
		if i == results && s.Files[i].Bytes > 0 {
			o.spares.keep(path+suffix, s.Files[i].Bytes)
		} else {
			_ = os.Remove(path + suffix)
		}
	}
}

// TakeSpare gives a file that a new part may be written over (PartOptions.Spare): it
// is the caller's alone. "" means that there is none. Any goroutine may call it.
func (o *Output) TakeSpare() string { return o.spares.take() }

func (o *Output) partPath(s Segment) string {
	return filepath.Join(o.options.WorkDir, PartsDir, s.Part)
}

// Appended is what stands in the output so far, and the record it ends before.
func (o *Output) Appended() (Tally, int64) { return o.tally.clone(), o.next }

// ResultBytes is how many bytes the results have so far.
func (o *Output) ResultBytes() int64 { return o.targets[results].size }

// ResultSum is what the results must hold, by what their writers have noted: it is not
// read back.
func (o *Output) ResultSum() FileSum { return o.sum }

// Size is how many bytes all of it has so far.
func (o *Output) Size() (bytes int64) {
	for i := range o.targets {
		bytes += o.targets[i].size
	}
	return bytes
}

// Finish makes the output durable and gives it its name, after all that belongs
// to it has one. If that fails the rest is abandoned.
func (o *Output) Finish() error {
	defer o.close()
	removed := make(chan struct{})
	go func() { // while the disk is busy
		defer close(removed)
		o.spares.close()
	}()
	defer func() { <-removed }()
	if o.failed != nil {
		return o.failed
	}
	if err := o.settle(); err != nil {
		return err
	}
	if n := len(o.waiting); n > 0 {
		return fault.New(fault.Unknown, "bug: %d segments wait for record %d", n, o.next)
	}
	if err := o.partsPresent(); err != nil {
		return err
	}
	if o.options.Journal != nil {
		if err := o.journal(Entry{Complete: o.durable()}); err != nil {
			return err
		}
		crash.Point("complete")
	}
	for _, i := range finishOrder {
		if err := o.finish(i); err != nil {
			return err
		}
		crash.Point("renamed")
	}
	return nil
}

// partsPresent is the fault of a folder of parts from which somebody took one.
func (o *Output) partsPresent() error {
	if o.cutter == nil {
		return nil
	}
	for _, p := range o.cutter.parts {
		path := filepath.Join(o.targets[results].temporary, p.Name)
		size, err := sizeOf(path)
		if err != nil {
			return storageOf(path, err)
		}
		if size != p.Bytes {
			return removedMeanwhile(path)
		}
	}
	return nil
}

// finish gives a file, or the folder of parts, its name.
func (o *Output) finish(i int) error {
	if i == results && o.cutter != nil {
		return o.targets[i].finishFolder(NewManifest(o.cutter.parts, o.tally.Counts), o.options.replaces(i))
	}
	return o.targets[i].finish(o.options.replaces(i))
}

// finishOrder: the results get their name last, when all that belongs to them is
// there.
var finishOrder = [streams]int{failures, failedRecords, results}

// CompleteOutput gives the files of an output their names, where a crash came
// between that and the journal's word that they are complete.
func CompleteOutput(options OutputOptions, state State) error {
	final, temporary := options.paths()
	for _, i := range finishOrder {
		if i == results && options.PartBytes > 0 {
			parts := cutParts(options.PartBytes, options.First, runs(state.Output))
			m := NewManifest(parts.parts, state.Durable.Tally.Counts)
			if err := NameFolder(temporary[i], final[i], m, options.replaces(i)); err != nil {
				return err
			}
			continue
		}
		if final[i] == "" || isDirect(final[i]) && !isFolder(final[i]) { // that would only be in the way
			continue
		}
		path, size := RealPath(final[i]), state.Durable.Sizes[i]
		info, err := os.Stat(temporary[i])
		named := errors.Is(err, os.ErrNotExist)
		if named {
			info, err = os.Stat(path)
		}
		if err != nil || info.Size() != size {
			return fault.New(fault.Conflict, "the job was complete, but %s is not what it wrote; --fresh starts it over", final[i])
		}
		if named { // but perhaps not durably
			err = storageOf(path, syncDir(filepath.Dir(path)))
		} else {
			err = NameFile(temporary[i], path, options.replaces(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Abandon closes the output without giving it its name; what is there is made
// durable as far as possible, so that little is left to check when the job goes
// on.
func (o *Output) Abandon() {
	_ = o.Checkpoint(true)
	o.spares.close()
	o.close()
}

func (o *Output) close() {
	o.closed = true
	_ = o.settle() // whoever wanted to know has asked
	o.writeback.end()
	for i := range o.targets {
		o.targets[i].close()
	}
}
