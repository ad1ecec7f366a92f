package input

import (
	"context"
	"io"
	"os"
	"runtime"
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
)

// Section is a file or stream of an input, or several small files whose records share
// chunks.
type Section struct {
	// Name is what messages and marks call it; "" for a stream without a name. Number is its
	// place among all inputs.
	Name   string
	Number int
	// Path is a file of plain lines, whose chunks are ranges of it. If it is empty, Open is
	// called, once, and the lines are copied to spool files.
	Path string
	Open func(ctx context.Context) (format.Lines, error)
	// Files, if set, are read one after the other instead of Path and Open.
	Files []SectionFile
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

// SectionFile is one of several files that form a section.
type SectionFile struct {
	// Name is what messages and marks call it, Number its place among all input files.
	Name   string
	Number int
	Open   func(ctx context.Context) (format.Lines, error)
}

// files returns the files of a section that must be decoded.
func (s *Section) files() []SectionFile {
	if len(s.Files) > 0 {
		return s.Files
	}
	return []SectionFile{{Name: s.Name, Number: s.Number, Open: s.Open}}
}

// SequenceOptions say how to split sections into chunks.
type SequenceOptions struct {
	Limits
	// Dir is the folder for the spool files. It is created, and Close removes it.
	Dir string
	// ChunkRecords is the number of records per chunk of a decoded section.
	ChunkRecords int64
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
	Log *ChunkLog
	// Done reports whether records that an earlier run has read need not be read again.
	Done func(first, records int64) bool
	// Keep keeps spool files until Durable reports that they are not needed, and the folder
	// when the source is closed. The spool then has no limit: streams are copied as fast as
	// they arrive.
	Keep bool
	// SkipBad ends a damaged section where the damage begins, instead of failing. Skipped is
	// called for each.
	SkipBad bool
	Skipped func(Damage)
}

// Damage is where a section could not be read any further.
type Damage struct {
	// Name is that of the section.
	Name string
	// Line is the first line that could not be read, or the first row if Rows is true.
	Line int64
	Rows bool
	Err  error
}

// sequence is a source made of sections, one after the other. Several sections are read at
// a time; their chunks are numbered when it is their turn.
type sequence struct {
	sections []Section
	options  SequenceOptions
	counted  []int64 // the first record of each section, and the end; nil if unknown
	once     bool    // a stream is among the sections
	cancel   context.CancelFunc
	readers  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below has changed
	next    int           // the section to be read next
	head    int           // the section that Next takes chunks from
	reading map[int]*section
	starts  []int64             // the first record of each section up to head
	plain   map[int]*fileSource // sections of plain lines that were opened
	seen    int64               // records before head, including those that the limits leave out
	used    int64               // records before head in chunks
	total   int64
	blank   int64
	spooled int64 // bytes in spool files
	files   map[string]spoolFile
	kept    []keptChunk // Keep: in order
	past    int64       // bytes of the files before head
	size    int64       // of all files; 0 if that is not known
	err     error
}

// spoolFile is a file of the spool: how many of its records are still needed.
type spoolFile struct{ records, bytes int64 }

// section is a Section that is being read, or has been.
type section struct {
	chunks []spooledChunk // that Next has not returned
	bytes  int64          // of a plain file: how many are in chunks
	index  int            // how many it has returned
	logged int            // how many are in the log
	ended  bool
	end    sectionEnd
	err    error

	endLogged bool
}

// spooledChunk is a chunk with what the log says about it. Its First counts from the start
// of its section.
type spooledChunk struct {
	chunk.Chunk
	logged loggedChunk
}

// Sequence returns the source of several sections, or of one that is not a plain file.
func Sequence(sections []Section, options SequenceOptions) (Streamed, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fault.New(fault.Storage, "create spool folder: %w", err)
	}
	if options.Ahead <= 0 {
		options.Ahead = spoolAhead
	}
	if options.Parallel <= 0 {
		options.Parallel = runtime.GOMAXPROCS(0)
	}
	counted := countedStarts(sections)
	if options.Limits != (Limits{}) && counted == nil {
		options.Parallel = 1 // what a section may use depends on those before it
	}
	if options.Done == nil {
		options.Done = func(int64, int64) bool { return false }
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &sequence{
		sections: sections, options: options, cancel: cancel, changed: make(chan struct{}),
		reading: make(map[int]*section), plain: make(map[int]*fileSource), files: make(map[string]spoolFile), counted: counted,
	}
	for _, section := range sections {
		s.size += section.Size
		s.once = s.once || section.Once
	}
	if s.once {
		s.size = 0
	}
	for range min(options.Parallel, len(sections)) {
		s.readers.Go(func() { s.readSections(ctx) })
	}
	return s, nil
}

// countedStarts returns where sections start, and where the last one ends; nil if not all
// are counted.
func countedStarts(sections []Section) []int64 {
	starts := make([]int64, 1, len(sections)+1)
	for i, s := range sections {
		if !s.Counted {
			return nil
		}
		starts = append(starts, starts[i]+s.Records)
	}
	return starts
}

// broadcast wakes everyone who waits for a change. The caller must hold s.mu.
func (s *sequence) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ready, which is called with the lock held, returns true. It returns
// false if ctx ends first.
func (s *sequence) await(ctx context.Context, ready func() bool) bool {
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

func (s *sequence) Next(ctx context.Context) (c chunk.Chunk, err error) {
	if !s.await(ctx, func() (ok bool) { c, ok, err = s.take(); return ok }) {
		return chunk.Chunk{}, ctx.Err()
	}
	return c, err
}

// take returns the next chunk if it is available. The caller must hold s.mu.
func (s *sequence) take() (chunk.Chunk, bool, error) {
	for s.advance() {
	}
	if s.err != nil {
		return chunk.Chunk{}, true, s.err
	}
	if s.head == len(s.sections) {
		return chunk.Chunk{}, true, io.EOF
	}
	r := s.reading[s.head]
	if r == nil || len(r.chunks) == 0 {
		return chunk.Chunk{}, false, nil
	}
	if s.log(r, r.index+1); s.err != nil {
		return chunk.Chunk{}, true, s.err
	}
	c := r.chunks[0]
	r.chunks = r.chunks[1:]
	for len(s.starts) <= s.head {
		s.starts = append(s.starts, s.seen)
	}
	c.First += s.seen
	r.index++
	s.broadcast()
	s.keep(c.Chunk)
	return c.Chunk, true, nil
}

// advance goes on to the next section if all chunks of the current one were taken.
func (s *sequence) advance() bool {
	r := s.reading[s.head]
	if s.err != nil || r == nil || len(r.chunks) > 0 || !r.ended {
		return false
	}
	if s.err = r.err; s.err != nil {
		return false
	}
	if s.logEnd(r); s.err != nil {
		return false
	}
	s.seen += r.end.Seen
	s.used += r.end.Records
	s.past += s.sections[s.head].Size
	delete(s.reading, s.head)
	s.head++
	if limit := s.options.Limit; limit > 0 && s.used >= limit {
		s.head = len(s.sections)
	}
	s.broadcast()
	s.logKept()
	return true
}

// log writes the chunks of the current section up to an index to the log.
func (s *sequence) log(r *section, end int) {
	for ; r.logged < end && s.err == nil; r.logged++ {
		c := r.chunks[r.logged-r.index]
		c.logged.First = c.First + s.seen
		c.logged.Section, c.logged.Index = s.head, r.logged
		s.err = s.options.Log.add(c.logged)
	}
}

// logEnd writes the end of the current section to the log.
func (s *sequence) logEnd(r *section) {
	if !r.endLogged && s.err == nil {
		r.endLogged, r.end.Section = true, s.head
		if s.err = s.options.Log.add(loggedChunk{End: &r.end}); s.err == nil {
			s.err = s.syncKept()
		}
	}
}

// logKept writes to the log what is in a spool that is kept, whether or not a worker has
// taken it.
func (s *sequence) logKept() {
	r := s.reading[s.head]
	if !s.options.Keep || r == nil {
		return
	}
	s.log(r, r.index+len(r.chunks))
	if r.ended && r.err == nil {
		s.logEnd(r)
	}
}

// SectionOf returns the section that a record is in.
func (s *sequence) SectionOf(record int64) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > record })
	return after - 1, after > 0
}

// SumsOf returns the checksums of a section of plain lines.
func (s *sequence) SumsOf(number int) (sums Sums, whole bool) {
	s.mu.Lock()
	source := s.plain[number]
	s.mu.Unlock()
	if source == nil {
		return Sums{}, false
	}
	_, whole = source.Total() // before the sums: they only grow
	return source.Sums(), whole
}

// Ready reports whether a chunk or the end of the input is available.
func (s *sequence) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.advance() {
	}
	r := s.reading[s.head]
	return s.err != nil || s.head == len(s.sections) || r != nil && (len(r.chunks) > 0 || r.ended)
}

func (s *sequence) Total() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.advance() {
	}
	return s.total, s.err == nil && s.allRead()
}

// Estimate returns about how many records there are in all, judging by those in the bytes
// read so far; 0 if nothing can be said.
func (s *sequence) Estimate() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.past
	for number, r := range s.reading {
		switch section := s.sections[number]; {
		case r.ended:
			read += section.Size
		case section.Read != nil:
			read += min(section.Read(), section.Size)
		default:
			read += r.bytes
		}
	}
	if s.size == 0 || read < s.size/leastRead || s.options.Limits != (Limits{}) {
		return 0
	}
	return max(s.total, int64(float64(s.total)*float64(s.size)/float64(read)))
}

// leastRead: there is an estimate once one in leastRead bytes has been read.
const leastRead = 100

// allRead reports whether every section has been read to its end.
func (s *sequence) allRead() bool {
	for i := s.head; i < len(s.sections); i++ {
		if r := s.reading[i]; r == nil || !r.ended || r.err != nil {
			return false
		}
	}
	return true
}

func (s *sequence) Blank() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blank
}

// Release counts records: a chunk may be released in pieces, and its file is removed with
// the last one.
func (s *sequence) Release(c chunk.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, ok := s.files[c.File]
	if !ok || s.options.Keep {
		return
	}
	if file.records -= c.Records; file.records > 0 {
		s.files[c.File] = file
		return
	}
	s.remove(c.File)
}

func (s *sequence) Close() error {
	s.cancel()
	s.readers.Wait()
	if s.options.Keep {
		return nil
	}
	return os.RemoveAll(s.options.Dir)
}
