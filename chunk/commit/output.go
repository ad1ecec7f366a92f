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
	options Options
	waiting map[int64]chunk.Segment
	head    Durable // what has been taken; its results may not be appended yet
	raw     int64   // bytes of the results up to there, before they are encoded
	lines   int64   // and their lines
	cutter  *partCutter
	units   *units   // of its results
	results *results // what has been appended of them
	landed  landed
	targets []target // by the kinds of files
	failed  error    // an append failed: nothing may be appended after it
	closed  bool

	// Appended since the last durable point.
	parts     []chunk.Segment
	bytes     int64
	durableAt time.Time
	point     *point // in progress, or nil

	writeback writeback
}

// landed is the state up to which the output may become durable, and what was appended after
// it.
type landed struct {
	durable Durable
	read    partSums // of the results since the last mark, as they were encoded
	units   []Unit   // since the last mark
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
	// Layout describes the columns of a job that has some; else it is nil. Arrays are the files of
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
	// Input keeps what a resumed job needs until it is durable in the output; nil for none.
	Input *input.Source
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

// Temporary are the names of results, failed records and failures in the job folder until they are
// complete.
var Temporary = [chunk.PartFiles]string{"output.partial", "errors.partial", PartialFailures}

// outputFile is a file of the output. Its kind is chunk.Results, chunk.FailedRecords, chunk.Failures, or
// chunk.PartFiles plus the number of an array.
type outputFile struct {
	kind             int
	final, temporary string      // final is empty if there is no such file
	mode             os.FileMode // of one that stays in the job folder, only its owner may read
	replace          bool        // it may replace an existing one
}

// files returns the files of the output in the order in which they get their final names: the results are
// last, when all others have theirs.
func (o Options) files() (all []outputFile) {
	add := func(kind int, final, temporary string) {
		all = append(all, outputFile{kind, final, filepath.Join(o.WorkDir, temporary), files.PublicMode, o.Replace})
	}
	own := func(kind int, name string) {
		add(kind, filepath.Join(o.WorkDir, name), Temporary[kind])
		all[len(all)-1].mode, all[len(all)-1].replace = files.PrivateMode, true
	}
	for i, a := range o.Arrays {
		add(chunk.PartFiles+i, a.Path, TemporaryArray(i))
	}
	own(chunk.Failures, FailuresFile)
	if o.KeepFailed {
		own(chunk.FailedRecords, KeptFile)
	} else {
		add(chunk.FailedRecords, o.Errors, Temporary[chunk.FailedRecords])
	}
	add(chunk.Results, o.Path, Temporary[chunk.Results])
	return all
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
		if err := o.appendInOrder(s); err != nil {
			o.Abandon()
			return nil, err
		}
	}
	return o, nil
}

func openOutput(options Options, state State) (_ *Output, err error) {
	o := &Output{
		options: options, waiting: make(map[int64]chunk.Segment), durableAt: time.Now(),
		head: state.Durable, raw: state.Unencoded(), landed: landed{durable: state.Durable}, cutter: state.cutParts(options),
	}
	o.head.Tally = state.Durable.Tally.Clone()
	for _, s := range state.Output {
		o.lines += s.Lines
	}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	o.targets = make([]target, chunk.PartFiles+len(options.Arrays))
	for _, f := range options.files() {
		switch t := &o.targets[f.kind]; {
		case f.kind == chunk.Results && options.PartBytes > 0:
			*t, err = openPartFolder(f.final, f.temporary, o.cutter.parts)
		case f.final != "":
			*t, err = openTarget(f, options, state.size(f.kind))
		}
		if err != nil {
			return nil, err
		}
	}
	if o.results, err = openResults(options, state, o.cutter, o.targets, &o.writeback); err != nil {
		return nil, err
	}
	t := o.results.target
	direct := t.temporary == "" && !options.Format.Table // a table is of no use before its end
	o.units = newUnits(options, direct, o.head.Next, len(state.Encoded) > 0 && t.size > t.begun)
	if n := len(o.results.units); n > 0 {
		o.units.fileEnded = o.results.units[n-1].isTail()
	}
	if options.Journal != nil { // it will refer to files that must exist
		if err := files.SyncDir(options.WorkDir); err != nil {
			return nil, fault.WriteFailed.New("create output: %w", err)
		}
	}
	return o, nil
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
	if err := o.options.Journal.Append(Entry{Segment: &s}); err != nil {
		return err
	}
	crash.Point("journalled")
	return o.appendInOrder(s)
}

// appendInOrder appends a journaled segment when its turn comes.
func (o *Output) appendInOrder(s chunk.Segment) error {
	if o.failed != nil {
		return o.failed
	}
	o.waiting[s.First] = s
	for {
		s, ok := o.waiting[o.head.Next]
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

// append takes a whole segment: its results into units, which are appended when they are
// encoded, its other files at once. A partial append does not count.
func (o *Output) append(s chunk.Segment) error {
	path := o.partPath(s)
	if o.cutter.next(s.First) {
		o.units.beginPart(o.cutter.last().Name)
	}
	if err := o.units.collect(path, s, func() error { return o.land(false) }); err != nil {
		return err
	}
	base := o.raw // position of the part in the results
	if o.options.Format.Table {
		base = o.lines
	}
	for i := chunk.FailedRecords; i < chunk.PartFiles; i++ {
		t := &o.targets[i]
		copyPart := t.copyPart
		if i == chunk.Failures {
			copyPart = func(part *os.File) (int64, error) { return record.MoveFailures(t.writer, part, base) }
		}
		if err := t.appendFile(path+suffixes[i], s.Files[i].Bytes, copyPart); err != nil {
			return err
		}
		o.writeback.begin(t, s.Files[i].Bytes)
		o.head.Sizes[i] = t.size
	}
	delete(o.waiting, s.First)
	o.head.Next, o.head.Place = s.End(), s.Next
	o.head.Tally.Add(s.Tally)
	o.raw += s.Files[chunk.Results].Bytes
	o.lines += s.Lines
	o.cutter.add(s)
	if o.units.endSegment(s, o.cutter.full) {
		o.units.reach(o.head)
	}
	return nil
}

func (o *Output) partPath(s chunk.Segment) string {
	return filepath.Join(o.options.WorkDir, PartsDir, s.Part)
}

// Encoded is signaled when a unit is encoded, for Land to append it.
func (o *Output) Encoded() <-chan struct{} { return o.units.finished }

// Land appends the encoded units whose turn it is.
func (o *Output) Land() error {
	if err := o.land(false); err != nil {
		return err
	}
	return o.Checkpoint(false)
}

// land performs the steps that are ready, or all with wait.
func (o *Output) land(wait bool) error {
	for o.failed == nil {
		s, ok := o.units.next(wait)
		if !ok {
			break
		}
		o.failed = o.perform(s)
	}
	return o.failed
}

func (o *Output) perform(s step) error {
	l := &o.landed
	switch {
	case s.unit != nil:
		unit, err := o.results.add(s.unit)
		l.read = l.read.join(s.unit.read)
		l.units = append(l.units, unit)
		return err
	case s.tail:
		unit, err := o.results.end()
		l.units = append(l.units, unit)
		return err
	case s.mark != nil:
		return o.landMark(*s.mark)
	}
	if err := o.awaitPoint(); err != nil { // it covers the part that ends
		return err
	}
	return o.results.begin(s.part)
}

// landMark records that everything up to a mark is appended.
func (o *Output) landMark(m mark) error {
	l := &o.landed
	if err := l.read.check(m.sums); err != nil {
		return err
	}
	m.Sizes[chunk.Results] = o.results.target.size
	if !o.units.segments { // no durable point may cover units that the journal lacks
		if err := o.options.Journal.Append(Entry{Encoded: &Encoded{First: m.first, Next: m.Next, Units: l.units}}); err != nil {
			return err
		}
	}
	*l = landed{durable: m.Durable}
	if o.options.Journal == nil {
		for _, s := range m.segments {
			removeCommitted(o.partPath(s))
		}
		return nil
	}
	o.parts = append(o.parts, m.segments...)
	for _, s := range m.segments {
		for _, f := range s.Files {
			o.bytes += f.Bytes
		}
	}
	crash.Point("encoded")
	return nil
}

// Appended returns the tally of the output so far and the first record that is not in it.
func (o *Output) Appended() (chunk.Tally, int64) { return o.head.Tally.Clone(), o.head.Next }

// ResultSum returns the checksum of the results in the output. It does not read them back.
func (o *Output) ResultSum() chunk.FileSum { return o.results.sum }

// ArraySums returns the checksums of the finished arrays.
func (o *Output) ArraySums() []chunk.FileSum { return o.options.finishedSums(o.results.arraySums) }

// Unencoded returns the size of the results before encoding.
func (o *Output) Unencoded() int64 { return o.raw }

// Size returns the size of the whole output so far. It estimates the size of results that are
// not encoded yet.
func (o *Output) Size() int64 {
	bytes, ratio := int64(0), 1.0
	for i := range o.targets {
		bytes += o.targets[i].size
	}
	if o.results.raw > 0 {
		ratio = float64(o.results.target.size) / float64(o.results.raw)
	}
	return bytes + int64(float64(o.raw-o.results.raw)*ratio)
}
