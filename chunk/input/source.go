package input

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// spoolBytes limits the size of a spool file, unless one line is longer.
	spoolBytes = 64 << 20
	// spoolAhead is how many chunks of the section that is being consumed to prefetch. The
	// spool takes disk space, so a fast producer must wait.
	spoolAhead = 8
	// spoolLimit is how many bytes the sections behind that one may have in spool files:
	// what is decoded in parallel must be stored until it is its turn.
	spoolLimit = 1 << 30
	// sectionsAhead is how many sections may be read before it is their turn.
	sectionsAhead = 64
	// maxWaiting is how many chunks of a section may wait for its turn.
	maxWaiting = 4096
	// leastRead: there is an estimate once one in leastRead bytes has been read.
	leastRead = 100
)

// Limits selects which records of the input to use.
type Limits struct {
	// Offset is the number of records to skip.
	Offset int64
	// Limit is the number of records to use after that; 0 means all.
	Limit int64
}

// Select reports whether all of these records are used.
func (l Limits) Select(first, records int64) bool {
	return first >= l.Offset && (l.Limit == 0 || first+records <= l.Offset+l.Limit)
}

// Section is a file or stream of an input, or several small files whose records share
// chunks.
type Section struct {
	// Files are read one after the other. Their lines are copied to spool files, unless Path is
	// set.
	Files []SectionFile
	// Path is the only file, of plain lines: its chunks are ranges of it.
	Path string
	// Window, if set, is the only part of the file at Path that is used.
	Window *chunk.Chunk
	// Cut, if set, are the chunks of the file at Path, which is the only one: its records have
	// been counted, and it is not read again. Their numbers are those in the whole input.
	Cut *Cut
	// Size is the number of bytes of the files, 0 if unknown; Read returns how many of them
	// have been read to be decoded. They serve to estimate the number of records.
	Size int64
	Read func() int64
	// Once: the section cannot be read again, because it is a stream.
	Once bool
	// Same: this is the file that the log describes. It is not decoded again if everything
	// in it is done.
	Same bool
	// Counted: it is known that the section has this number of Records. If all are counted, only those
	// that the limits select are read.
	Counted bool
	Records int64
}

// SectionFile is a file or stream of a section.
type SectionFile struct {
	// Name is what messages and marks call it; "" for a stream without a name, and for the only
	// file of an input if its chunks are ranges of it. Number is its place among all inputs.
	Name   string
	Number int
	// Open is called once, unless the section has a Path.
	Open func(ctx context.Context) (format.Lines, error)
}

// Options say how to split sections into chunks.
type Options struct {
	Limits
	// Dir is the folder for the spool files. It is created if there will be any, and Close
	// removes it.
	Dir string
	// A chunk of a decoded section ends at the first multiple of ChunkRecords records that has LeastBytes
	// bytes; that of a stream, which may be slow, does not wait for them.
	ChunkRecords, LeastBytes int64
	// ChunkBytes is the size of chunks of plain files.
	ChunkBytes int64
	// Flush is how long the first record of a chunk may wait for the others; 0 for as long
	// as it takes: then the chunks depend on the content alone.
	Flush time.Duration
	// Ahead is how many chunks may wait for a worker; 0 means 8.
	Ahead int
	// Parallel is how many sections are read at a time; 0 means the number of processors.
	Parallel int
	// Log describes the chunks of earlier runs, and gets those of this one; nil for none.
	Log *Log
	// Earlier is what earlier runs have computed. It is not returned again, and need not be
	// read again; nil for nothing.
	Earlier Earlier
	// Blobs is how many values each record of a spool file has beside its line.
	Blobs int
	// Keep keeps spool files until Durable reports that they are not needed, and the folder
	// when the source is closed. The spool then has no limit: streams are copied as fast as
	// they arrive.
	Keep bool
	// SkipBad ends a damaged section where the damage begins, instead of failing. Skipped is
	// called for each.
	SkipBad bool
	Skipped func(Damage)
}

// Earlier is what earlier runs have computed; see commit.State.
type Earlier interface {
	// Holds reports whether all of these records are done.
	Holds(first, records int64) bool
	// Remaining returns what is not done of chunks.
	Remaining([]chunk.Chunk) []chunk.Chunk
}

// nothing is what a first run has before it.
type nothing struct{}

func (nothing) Holds(int64, int64) bool                   { return false }
func (nothing) Remaining(all []chunk.Chunk) []chunk.Chunk { return all }

// Damage is where a section could not be read any further.
type Damage struct {
	// Name is the name of the section.
	Name string
	// Line is the first line that could not be read, or the first row if Rows is true.
	Line int64
	Rows bool
	Err  error
}

// Source provides an input as chunks, in order: sections, one after the other. The chunks of a
// plain file are ranges of it. All other content is copied to spool files, and its chunks are
// ranges of those. Several sections are read at a time; their chunks are numbered when it is
// their turn.
//
// All methods may be called concurrently, except Next with itself.
type Source struct {
	sections []*section
	options  Options
	counted  bool // it is known how many records each section has
	once     bool // a stream is among the sections
	cancel   context.CancelFunc
	readers  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below has changed
	next    int           // the section to be read next
	head    int           // the section whose turn it is
	ready   []chunk.Chunk // for Next
	used    int64         // records before head in chunks
	total   int64
	blank   int64
	spool   spoolFiles
	past    int64 // bytes of the files before head
	size    int64 // of all files; 0 if that is not known
	err     error
}

// Open starts to read sections.
func Open(sections []Section, options Options) (*Source, error) {
	if slices.ContainsFunc(sections, func(s Section) bool { return s.Path == "" }) {
		if err := os.MkdirAll(options.Dir, 0o700); err != nil {
			return nil, fault.NoCopy.New("create spool folder: %w", err)
		}
	}
	if options.Ahead <= 0 {
		options.Ahead = spoolAhead
	}
	if options.Parallel <= 0 {
		options.Parallel = runtime.GOMAXPROCS(0)
	}
	if options.Earlier == nil {
		options.Earlier = nothing{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Source{
		options: options, cancel: cancel, changed: make(chan struct{}), counted: true,
		spool: spoolFiles{keep: options.Keep, files: make(map[string]spoolFile)},
	}
	var first int64
	for number, one := range sections {
		r := &section{Section: one, source: s, number: number, first: first}
		s.sections = append(s.sections, r)
		s.size += one.Size
		s.once = s.once || one.Once
		s.counted = s.counted && one.Counted
		first += one.Records
		r.addCut()
	}
	if s.once {
		s.size = 0
	}
	for range min(s.parallel(options.Parallel), len(sections)) {
		s.readers.Go(func() { s.readSections(ctx) })
	}
	return s, nil
}

// parallel returns how many of these sections can be read at a time: what a section may use
// depends on those before it, unless they are counted.
func (s *Source) parallel(most int) int {
	if s.options.Limits != (Limits{}) && !s.counted {
		return 1
	}
	return most
}

// broadcast wakes everyone who waits for a change. The caller must hold s.mu.
func (s *Source) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ready, which is called with the lock held, returns true. It returns
// false if ctx ends first.
func (s *Source) await(ctx context.Context, ready func() bool) bool {
	for {
		s.mu.Lock()
		done, changed := ready(), s.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// readSections reads one section after the other, until there are no more or ctx ends.
func (s *Source) readSections(ctx context.Context) {
	for {
		var r *section
		if !s.await(ctx, func() bool {
			for s.next < len(s.sections) && s.sections[s.next].Cut != nil {
				s.next++
			}
			switch {
			case s.err != nil || s.next >= len(s.sections) || s.head == len(s.sections):
				return true
			case s.next >= s.head+s.parallel(sectionsAhead):
				return false
			}
			r = s.sections[s.next]
			r.limit()
			s.next++
			return true
		}) || r == nil {
			return
		}
		end, err := r.read(ctx)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		s.mu.Lock()
		r.ended, r.end, r.err = true, end, err
		s.logKept()
		s.broadcast()
		s.mu.Unlock()
	}
}

// Next returns the next chunk, io.EOF after the last, or the error that ended the input. It
// blocks while a stream has no data yet.
func (s *Source) Next(ctx context.Context) (c chunk.Chunk, err error) {
	if !s.await(ctx, func() bool {
		if !s.fill() {
			return false
		}
		switch {
		case len(s.ready) > 0:
			c, s.ready = s.ready[0], s.ready[1:]
		case s.err != nil:
			err = s.err
		default:
			err = io.EOF
		}
		return true
	}) {
		return chunk.Chunk{}, ctx.Err()
	}
	return c, err
}

// Ready reports whether Next would return at once.
func (s *Source) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fill()
}

// fill takes chunks until something remains to be computed of one, or the input ends. It
// returns false if that has to wait. The caller must hold s.mu.
func (s *Source) fill() bool {
	for len(s.ready) == 0 {
		for s.advance() {
		}
		if s.err != nil || s.head == len(s.sections) {
			return true
		}
		r := s.sections[s.head]
		if len(r.chunks) == 0 {
			return false
		}
		if r.log(r.taken + 1); s.err != nil {
			return true
		}
		c := r.chunks[0].Chunk
		r.chunks, r.taken = r.chunks[1:], r.taken+1
		c.First += r.first
		s.spool.hold(c)
		s.ready = s.options.Earlier.Remaining([]chunk.Chunk{c})
		for _, left := range s.ready {
			c.Records -= left.Records
		}
		s.spool.release(c)
		s.broadcast()
	}
	return true
}

// advance goes on to the next section if all chunks of the current one were taken. The caller
// must hold s.mu.
func (s *Source) advance() bool {
	if s.err != nil || s.head == len(s.sections) {
		return false
	}
	r := s.sections[s.head]
	if len(r.chunks) > 0 || !r.ended {
		return false
	}
	if s.err = r.err; s.err != nil {
		return false
	}
	if r.logEnd(); s.err != nil {
		return false
	}
	s.used += r.end.Records
	s.past += r.Size
	for s.head++; s.head < len(s.sections); s.head++ {
		s.sections[s.head].first = r.first + r.end.Seen
		if limit := s.options.Limit; limit == 0 || s.used < limit {
			break
		}
	}
	s.broadcast()
	s.logKept()
	return true
}

// logKept writes to the log what is in a spool that is kept, whether or not a worker has
// taken it.
func (s *Source) logKept() {
	if !s.options.Keep || s.head == len(s.sections) {
		return
	}
	r := s.sections[s.head]
	r.log(r.taken + len(r.chunks))
	if r.ended && r.err == nil {
		r.logEnd()
	}
}

// SectionOf returns the number of the section that a record of a chunk is in.
func (s *Source) SectionOf(record int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := min(s.head+1, len(s.sections))
	return sort.Search(had, func(i int) bool { return s.sections[i].first > record }) - 1
}

// SumsOf returns the checksums of what was read of a section of plain lines so far, and
// whether that is all of it.
func (s *Source) SumsOf(number int) (sums Sums, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sections[number].sums, s.sections[number].whole
}

// Total returns the number of records in all chunks. While known is false, it is the number
// found so far.
func (s *Source) Total() (records int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.advance() {
	}
	unknown := func(r *section) bool { return !r.ended || r.err != nil }
	return s.total, s.err == nil && !slices.ContainsFunc(s.sections[s.head:], unknown)
}

// Estimate returns about how many records there are in all, judging by those in the bytes
// read so far; 0 if nothing can be said.
func (s *Source) Estimate() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.past
	for _, r := range s.sections[s.head:max(s.head, s.next)] {
		switch {
		case r.ended:
			read += r.Size
		case r.Read != nil:
			read += min(r.Read(), r.Size)
		default:
			read += r.bytes
		}
	}
	if s.size == 0 || read < s.size/leastRead || s.options.Limits != (Limits{}) {
		return 0
	}
	return max(s.total, int64(float64(s.total)*float64(s.size)/float64(read)))
}

// Blank returns the number of blank lines found so far: all of them once Next has returned
// io.EOF.
func (s *Source) Blank() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blank
}

// Stays reports whether the file of a chunk is the user's, so that it is there after Release.
func (s *Source) Stays(c chunk.Chunk) bool {
	return filepath.Dir(c.File) != filepath.Clean(s.options.Dir)
}

// Release reports that the bytes of a chunk, or of some of its records, are no longer needed.
func (s *Source) Release(c chunk.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spool.release(c)
	s.broadcast()
}

// Sync makes durable what a resumed job must know about the records that were read. It must be
// called before their results are called durable: a stream that arrives again is refused unless
// it can be compared with the log.
func (s *Source) Sync() error {
	if s == nil || !s.once {
		return nil
	}
	return s.options.Log.sync()
}

// Durable reports that the results of all records before next are durable. It removes the
// files that were kept for them.
func (s *Source) Durable(next int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spool.durable(next)
	s.broadcast()
}

// Close frees all resources. No chunk may be read afterwards.
func (s *Source) Close() error {
	s.cancel()
	s.readers.Wait()
	if s.options.Keep {
		return nil
	}
	return os.RemoveAll(s.options.Dir)
}
