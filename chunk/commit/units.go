package commit

import (
	"cmp"
	"math"
	"runtime"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/table"
)

// units cuts the results into units and encodes several at a time, while the committer goes on.
// What is to be done with them waits in a queue, in order. Plain lines need no encoding: their
// units are the segments.
type units struct {
	codec  encode.Codec
	layout *columns.Shared // of an output with columns, else nil
	table  bool
	format table.Format // of a table
	// bytes is the size of a unit, least the size from which it ends with a planned chunk.
	bytes, least int64
	segments     bool         // a unit is a segment
	open         *pendingUnit // collects results
	begun        bool         // the current file has a unit
	since        mark         // what was collected since the last mark
	// fileEnded: the current file of a table has its tail.
	fileEnded bool

	queue    []step
	waiting  []*pendingUnit // in the queue, not being encoded yet
	most     int            // how many units are encoded ahead,
	ahead    int            // and how many are at present
	finished chan struct{}  // notifies that some unit is encoded
}

// step is the next thing that happens to an encoded output: a part of a folder begins, a
// unit is appended, or a mark is reached.
type step struct {
	part string
	unit *pendingUnit
	tail bool // of a file of a table
	mark *mark
}

// mark is the state of the output where a planned chunk and a unit end: where the output may
// become durable.
type mark struct {
	Durable
	first    int64           // of the segments since the previous mark,
	segments []chunk.Segment // which are these
	synced   int             // how many of their parts are on disk
	sums     partSums        // as their writers computed them
}

// encodeMemory is how much memory the units that are encoded ahead may take together: each at most
// twice its size before encoding.
const encodeMemory = 1 << 30

// encodeAhead returns how many units of a size are encoded ahead: twice as many as processors, because
// they are appended in order.
func encodeAhead(size int64, processors int) int {
	return max(1, min(2*processors, encode.MaxEncoders, int(encodeMemory/2/size)))
}

// newUnits begins with record next. every ends a unit with every planned chunk, because the
// output is read while it is written.
func newUnits(options Options, every bool, next int64, begun bool) *units {
	size := cmp.Or(options.UnitBytes, options.Format.UnitBytes, encode.Lines().UnitBytes)
	u := &units{
		codec: options.Format.Codec, layout: options.Layout, table: options.Format.Table, format: table.Of(options.Format.Name),
		bytes: size, least: size / leastShare, begun: begun, since: mark{first: next},
		most: encodeAhead(size, runtime.GOMAXPROCS(0)), finished: make(chan struct{}, 1),
	}
	if u.layout == nil && u.codec == nil {
		u.segments, u.bytes = true, math.MaxInt64
	}
	if every {
		u.least = 0
	}
	u.open = u.newUnit()
	return u
}

func (u *units) newUnit() *pendingUnit { return &pendingUnit{of: u, done: make(chan struct{})} }

// collect collects the results of a segment, which are in a part, and ends units as they become
// long enough. It calls ended after each.
func (u *units) collect(part string, s chunk.Segment, ended func() error) (err error) {
	if u.layout != nil {
		err = u.collectRows(part, s, ended)
	} else {
		err = u.collectLines(part+suffixes[chunk.Results], s.Files[chunk.Results], ended)
	}
	if err != nil {
		return err
	}
	u.since.segments = append(u.since.segments, s)
	u.since.sums = u.since.sums.join(sumsOf(s))
	return nil
}

func (u *units) collectLines(path string, file chunk.FileSum, ended func() error) error {
	if u.segments && file.Bytes > 0 {
		u.open.add(piece{path, 0, file.Bytes})
		u.open.sum, u.open.read.lines = file, file
		u.end()
		return ended()
	}
	for at := int64(0); at < file.Bytes; {
		end := file.Bytes
		missing := u.bytes - u.open.raw
		whole := file.Bytes-at >= missing
		if whole {
			var err error
			if end, err = lineEnd(path, at+missing-1, file.Bytes); err != nil {
				return err
			}
		}
		u.open.add(piece{path, at, end - at})
		at = end
		if whole {
			u.end()
			if err := ended(); err != nil {
				return err
			}
		}
	}
	return nil
}

// endSegment ends the unit with a segment if that ends a planned chunk, and the unit is long
// enough or must end. It reports whether nothing is left in the unit, so that the output may
// become durable there.
func (u *units) endSegment(s chunk.Segment, must bool) bool {
	if s.Inner && !u.segments {
		return false
	}
	if u.open.raw > 0 && (must || u.open.raw >= u.least) {
		u.end()
	}
	if u.open.raw == 0 && must && u.table {
		u.endFile()
	}
	return u.open.raw == 0
}

// endFile puts the tail of the current file of a table at the end of the queue.
func (u *units) endFile() {
	u.queue = append(u.queue, step{tail: true})
	u.fileEnded = true
}

// endAll ends the last unit. A file of no lines gets an empty unit: without one, readers
// would take it for a truncated file.
func (u *units) endAll() (ended bool) {
	if u.open.raw > 0 || !u.begun && u.codec != nil {
		u.end()
		ended = true
	}
	if u.table && !u.fileEnded {
		u.endFile()
		ended = true
	}
	return ended
}

// end ends the unit and begins to encode it.
func (u *units) end() {
	unit := u.open
	u.open, u.begun = u.newUnit(), true
	u.queue = append(u.queue, step{unit: unit})
	if !u.table && (u.codec == nil || unit.raw > heldUnit) { // nothing to encode, or too much to hold
		close(unit.done)
		return
	}
	u.waiting = append(u.waiting, unit)
	u.start()
}

// start begins to encode units that wait, as many as memory allows. None of them can be encoded before
// the layout is known.
func (u *units) start() {
	for len(u.waiting) > 0 && u.ahead < u.most && (u.layout == nil || u.layout.Get() != nil) {
		unit := u.waiting[0]
		u.waiting = u.waiting[1:]
		u.ahead++
		unit.ahead = true
		go func() {
			unit.hold()
			close(unit.done)
			select {
			case u.finished <- struct{}{}:
			default:
			}
		}()
	}
}

// reach puts a mark at the end of the queue.
func (u *units) reach(d Durable) {
	m := u.since
	m.Durable = d
	m.Tally = d.Tally.Clone()
	u.queue = append(u.queue, step{mark: &m})
	u.since = mark{first: d.Next}
}

// beginPart puts the beginning of a part at the end of the queue. The part before it may lack its
// tail, if a resume found that damaged.
func (u *units) beginPart(name string) {
	if u.table && !u.fileEnded {
		u.endFile()
	}
	u.queue = append(u.queue, step{part: name})
	u.begun, u.fileEnded = false, false
}

// next returns the next step if it can be performed now or must be waited for.
func (u *units) next(wait bool) (step, bool) {
	if len(u.queue) == 0 {
		return step{}, false
	}
	u.start()
	s := u.queue[0]
	if s.unit != nil {
		if u.layout != nil && u.layout.Get() == nil {
			return step{}, false // none of its rows has values, and nothing tells how long they are
		}
		if !wait && len(u.waiting) == 0 {
			select {
			case <-s.unit.done:
			default:
				return step{}, false
			}
		}
		<-s.unit.done
		if s.unit.ahead {
			u.ahead--
		}
	}
	u.queue[0] = step{}
	u.queue = u.queue[1:]
	return s, true
}

// drop waits for the units that are being encoded and discards all.
func (u *units) drop() {
	for _, s := range u.queue {
		if s.unit != nil && s.unit.ahead {
			<-s.unit.done
		}
	}
	u.queue, u.waiting = nil, nil
}
