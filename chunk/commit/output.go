package commit

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Output reassembles segments in input order and keeps a journal of them. Segments that
// finish early wait as parts on disk, so memory does not grow with the input.
//
// It must not be used concurrently.
type Output struct {
	options   Options
	next      int64                  // first record of the next segment to append
	place     chunk.Place            // its position in the input
	sizes     [chunk.PartFiles]int64 // of the targets up to next; a failed append leaves the files longer
	waiting   map[int64]chunk.Segment
	tally     chunk.Tally
	sum       chunk.FileSum // of the results up to next, as computed by their writers
	targets   [chunk.PartFiles]target
	cutter    *partCutter // for a folder; nil for a file
	raw       int64       // bytes of the results up to next, before they are encoded
	units     *units      // of an output that is encoded or has columns; nil for plain lines
	landed    landed
	lines     int64           // of the results up to next
	arrays    []target        // beside the output
	arraySums []chunk.FileSum // of their rows
	rows      rowMemory       // for them
	fileUnits [][]Unit        // of each file of a table
	failed    error           // an append failed: nothing may be appended after it
	closed    bool

	// Appended since the last durable point.
	parts     []chunk.Segment
	bytes     int64
	durableAt time.Time
	point     *point // in progress, or nil

	writeback writeback
}

// Options say where the output goes.
type Options struct {
	// Path is the output: a file name, - for Stdout, or a folder name if PartBytes is set.
	Path string
	// PartBytes makes the output a folder of parts of at least this size.
	PartBytes int64
	// Errors is the file for failed records; if empty, they stay in place in Path.
	Errors string
	// Format is how the results are stored; the zero value is plain lines.
	Format encode.Format
	// UnitBytes is the size of a unit of an encoded output; default encode.UnitBytes. It must
	// be the same when a job resumes.
	UnitBytes int64
	// Layout is that of the columns of a job that has some, else nil. Arrays are the files of
	// those that are stored beside the output.
	Layout *columns.Shared
	Arrays []Array
	// KeepFailed keeps failed records in the job folder, because the results do not hold
	// them. It excludes Errors.
	KeepFailed bool
	// Replace lets finished files replace existing ones.
	Replace bool
	// WorkDir is the job folder. Unfinished output is written there and renamed when it is
	// complete.
	WorkDir string
	// First is the number of the first record.
	First int64
	// Stdout is the writer for -; nil means os.Stdout.
	Stdout io.Writer
	// Stop, when closed, ends the wait for a reader of an output that is a pipe; nil waits
	// forever.
	Stop <-chan struct{}
	// Journal records what must survive a crash; nil for a stream, which cannot be resumed.
	Journal *Journal
	// Input keeps what a resumed job needs until it is durable in the output; nil if it keeps
	// nothing.
	Input input.Keeper
	// NoDurable skips durable points, to measure their cost.
	NoDurable bool
	// DurableEvery is the interval between durable points; default 5s.
	DurableEvery time.Duration
}

// Names in the job folder: FailuresFile describes each failed record, KeptFile has them if the
// results do not, PartialFailures describes those of an unfinished job, PartsDir holds the parts that wait to be appended.
const (
	FailuresFile    = "failures.jsonl"
	KeptFile        = "failed.jsonl"
	PartialFailures = "failures.partial"
	PartsDir        = "parts"
)

// replaces reports whether a file may replace an existing one. Files in the job folder
// always may.
func (o Options) replaces(kind int) bool {
	return o.Replace || kind == chunk.Failures || kind == chunk.FailedRecords && o.KeepFailed
}

// mode returns the mode of a file of the output.
func (o Options) mode(kind int) os.FileMode {
	if kind == chunk.FailedRecords && o.KeepFailed {
		return files.PrivateMode
	}
	return modes[kind]
}

// cutsUnits reports whether the results are cut into units.
func (o Options) cutsUnits() bool { return o.Format.Encodes() || o.Layout != nil }

// paths returns the final and temporary names of the output's files.
func (o Options) paths() (final, temporary [chunk.PartFiles]string) {
	final = [chunk.PartFiles]string{o.Path, o.Errors, filepath.Join(o.WorkDir, FailuresFile)}
	if o.KeepFailed {
		final[chunk.FailedRecords] = filepath.Join(o.WorkDir, KeptFile)
	}
	for i, name := range [chunk.PartFiles]string{"output.partial", "errors.partial", PartialFailures} {
		temporary[i] = filepath.Join(o.WorkDir, name)
	}
	return final, temporary
}

// Create begins an output.
func Create(options Options) (*Output, error) {
	return openOutput(options, State{Durable: Durable{Next: options.First}})
}

// Resume resumes the output of an interrupted job: it truncates what was not durable
// and appends the existing parts again. The parts must have been verified.
func Resume(options Options, state State) (*Output, error) {
	state.Durable.Next = max(state.Durable.Next, options.First) // unknown before the first durable point
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

func openOutput(options Options, state State) (*Output, error) {
	o := &Output{
		options: options, next: state.Durable.Next, place: state.Durable.Place, sizes: state.Durable.Sizes,
		tally: state.Durable.Tally.Clone(), sum: state.ResultSum(), raw: state.Unencoded(), waiting: make(map[int64]chunk.Segment), durableAt: time.Now(),
	}
	for _, s := range state.Output {
		o.lines += s.Lines
	}
	if options.PartBytes > 0 {
		o.cutter = state.cutParts(options)
	}
	final, temporary := options.paths()
	for i := range o.targets {
		if final[i] == "" {
			continue
		}
		var err error
		if i == chunk.Results && o.cutter != nil {
			o.targets[i], err = openPartFolder(final[i], temporary[i], o.cutter.parts)
		} else {
			o.targets[i], err = openTarget(final[i], temporary[i], options, state.Durable.Sizes[i], options.mode(i))
		}
		if err != nil {
			o.Abandon()
			return nil, err
		}
	}
	o.openUnits(state)
	if err := o.openArrays(state); err != nil {
		o.Abandon()
		return nil, err
	}
	if options.Journal != nil { // it will refer to files that must exist
		if err := files.SyncDir(options.WorkDir); err != nil {
			o.Abandon()
			return nil, fault.New(fault.Storage, "create output: %w", err)
		}
	}
	return o, nil
}

// openUnits prepares the encoding of results.
func (o *Output) openUnits(state State) {
	if !o.options.cutsUnits() {
		return
	}
	direct := o.targets[chunk.Results].temporary == "" && !o.options.Format.Table // which is of no use before its end
	begun := len(state.Encoded) > 0 && o.targets[chunk.Results].size > o.targets[chunk.Results].begun
	o.units = newUnits(o.options, direct, o.next, begun)
	o.landed = landed{durable: state.Durable, raw: o.raw}
	if o.cutter != nil {
		o.landed.part = len(o.cutter.parts) - 1
	}
	if o.units.table() {
		o.landed.groups, o.units.fileEnded = state.groups(o.options), o.cutter != nil && o.cutter.full
		o.noteFileUnits(state)
	}
}

// Commit journals a finished segment and appends it, together with segments that waited for
// it, as soon as everything before it is appended. A segment that cannot be appended
// because the disk is full is still journaled if possible, so that it need not be computed
// again.
func (o *Output) Commit(s chunk.Segment) error {
	if s.Tally.Records == 0 { // it has no files and would displace the segment that begins there
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

// take appends a journaled segment when its turn comes.
func (o *Output) take(s chunk.Segment) error {
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
		if err := o.land(false); err != nil {
			return err
		}
		// Check here too, because many segments may have waited for one: the amount of data
		// stored twice, as parts and as output, must stay bounded.
		if err := o.Checkpoint(false); err != nil {
			return err
		}
	}
}

// append appends a whole segment. A partial append does not count.
func (o *Output) append(s chunk.Segment) error {
	path := o.partPath(s)
	base := o.raw // position of the part in the results
	if o.options.Format.Table {
		base = o.lines
	}
	if o.cutter != nil && o.cutter.next(s.First) {
		if err := o.beginPart(o.cutter.last().Name); err != nil {
			return err
		}
	}
	for i := range o.targets {
		if i == chunk.Results && o.units != nil {
			ended := func() error { return o.land(false) }
			take := func() error { return o.units.take(path+suffixes[i], s, ended) }
			if o.units.rows != nil {
				take = func() error { return o.units.takeRows(path, s, ended) }
			}
			if err := take(); err != nil {
				return err
			}
			continue
		}
		copyPart := o.targets[i].copyPart
		if i == chunk.Failures {
			copyPart = func(part *os.File, _ int64) (int64, error) {
				return record.MoveFailures(o.targets[i].writer, part, base)
			}
		}
		if err := o.targets[i].appendFile(path+suffixes[i], s.Files[i].Bytes, copyPart); err != nil {
			return err
		}
		o.writeback.begin(&o.targets[i], s.Files[i].Bytes)
	}
	for i := range o.targets {
		o.sizes[i] = o.targets[i].size
	}
	delete(o.waiting, s.First)
	o.next, o.place = s.End(), s.Next
	o.raw += s.Files[chunk.Results].Bytes
	o.lines += s.Lines
	o.tally.Add(s.Tally)
	if o.cutter != nil {
		o.cutter.add(s.Run())
	}
	o.appended(s)
	return nil
}

// appended notes a segment that has been appended. If the output is encoded, the segment is
// in a unit now, and is appended with it.
func (o *Output) appended(s chunk.Segment) {
	if o.units != nil {
		full := o.cutter != nil && o.cutter.full
		if !s.Inner && o.units.endChunk(full) {
			if full && o.units.table() {
				o.units.endFile()
			}
			o.units.reach(*o.head())
		}
		return
	}
	o.sum = o.sum.Join(s.Files[chunk.Results])
	for i := range s.Files {
		o.bytes += s.Files[i].Bytes
	}
	if o.options.Journal == nil {
		removeCommitted(o.partPath(s))
	} else {
		o.parts = append(o.parts, s)
	}
}

// beginPart begins the next part of a folder.
func (o *Output) beginPart(name string) error {
	if o.units != nil {
		o.units.beginPart(name)
		return nil
	}
	if err := o.settle(); err != nil { // it covers the part that ends
		return err
	}
	if err := o.targets[chunk.Results].nextPart(name); err != nil {
		return err
	}
	crash.Point("part-begun")
	return nil
}

func (o *Output) partPath(s chunk.Segment) string {
	return filepath.Join(o.options.WorkDir, PartsDir, s.Part)
}

// Appended returns the tally of the output so far and the first record that is not in it.
func (o *Output) Appended() (chunk.Tally, int64) { return o.tally.Clone(), o.next }

// ResultSum returns the checksum of the results in the output. It does not read them back.
func (o *Output) ResultSum() chunk.FileSum { return o.sum }

// Unencoded returns the size of the results before encoding.
func (o *Output) Unencoded() int64 { return o.raw }

// Size returns the size of the whole output so far. It estimates that of results that are
// not encoded yet.
func (o *Output) Size() (bytes int64) {
	for i := range o.targets {
		bytes += o.targets[i].size
	}
	for _, size := range o.arraySizes() {
		bytes += size
	}
	if o.units == nil {
		return bytes
	}
	unencoded, ratio := float64(o.raw-o.landed.raw), 1.0
	if o.landed.raw > 0 {
		ratio = float64(o.targets[chunk.Results].size) / float64(o.landed.raw)
	}
	return bytes + int64(unencoded*ratio)
}
