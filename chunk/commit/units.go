package commit

import (
	"bytes"
	"cmp"
	"math"
	"runtime"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
)

// units cuts the results into units and encodes several at a time, while the committer goes on.
// What is to be done with them waits in a queue, in order. Plain lines need no encoding: their
// units are the segments.
type units struct {
	codec encode.Codec
	// bytes is the size of a unit, least the size from which it ends with a planned chunk.
	bytes, least int64
	segments     bool         // a unit is a segment
	open         *pendingUnit // collects results
	begun        bool         // the current file has a unit
	since        mark         // what was collected since the last mark
	rows         *rowUnits    // of an output with columns, else nil
	// fileEnded: the current file of a table has its tail.
	fileEnded bool

	queue    []step
	encoding int           // units in the queue
	slots    chan struct{} // one per unit being encoded
	finished chan struct{} // notifies that some unit is encoded
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

// encodeMemory is what encoded units may take together. A slot has one that is being encoded, twice,
// and two that wait.
const encodeMemory, perSlot = 1 << 30, 4

// newUnits begins with record next. every ends a unit with every planned chunk, because the
// output is read while it is written.
func newUnits(options Options, every bool, next int64, begun bool) *units {
	size := cmp.Or(options.UnitBytes, options.Format.UnitBytes, encode.Lines().UnitBytes)
	u := &units{
		codec: options.Format.Codec, bytes: size, least: size / leastShare, begun: begun, since: mark{first: next},
		slots: make(chan struct{}, max(1, min(runtime.GOMAXPROCS(0), encode.MaxEncoders, int(encodeMemory/perSlot/size)))), finished: make(chan struct{}, 1),
	}
	switch {
	case options.Layout != nil:
		u.rows = &rowUnits{layout: options.Layout, table: options.Format.Table, stopped: make(chan struct{})}
	case options.Format.Codec == nil:
		u.segments, u.bytes = true, math.MaxInt64
	}
	if every {
		u.least = 0
	}
	u.open = u.newUnit()
	return u
}

func (u *units) newUnit() *pendingUnit {
	return &pendingUnit{codec: u.codec, format: u.rows, copied: u.segments}
}

// table reports whether the output is a table.
func (u *units) table() bool { return u.rows != nil && u.rows.table }

// take collects the results of a segment, which are in a part, and ends units as they become
// long enough. It calls ended after each.
func (u *units) take(part string, s chunk.Segment, ended func() error) (err error) {
	if u.rows != nil {
		err = u.takeRows(part, s, ended)
	} else {
		err = u.takeLines(part+suffixes[chunk.Results], s.Files[chunk.Results], ended)
	}
	if err != nil {
		return err
	}
	u.since.segments = append(u.since.segments, s)
	u.since.sums = u.since.sums.join(sumsOf(s))
	return nil
}

func (u *units) takeLines(path string, file chunk.FileSum, ended func() error) error {
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
	if u.open.raw == 0 && must && u.table() {
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
	if u.table() && !u.fileEnded {
		u.endFile()
		ended = true
	}
	return ended
}

// end ends the unit and begins to encode it.
func (u *units) end() {
	unit := u.open
	u.open, u.begun = u.newUnit(), true
	unit.done = make(chan struct{})
	u.push(unit)
	if !u.table() && (u.codec == nil || unit.raw > heldUnit) { // nothing to encode, or too much to hold
		close(unit.done)
		return
	}
	go func() {
		if u.rows != nil && !u.rows.await() {
			close(unit.done) // the output was abandoned
			return
		}
		u.slots <- struct{}{}
		defer func() { <-u.slots }()
		unit.data = unitBuffers.Get().(*bytes.Buffer)
		unit.data.Reset()
		unit.err = unit.encode(unit.data)
		close(unit.done)
		select {
		case u.finished <- struct{}{}:
		default:
		}
	}()
}

// push puts a unit at the end of the queue.
func (u *units) push(unit *pendingUnit) {
	u.queue = append(u.queue, step{unit: unit})
	u.encoding++
}

// unitBuffers hold encoded units.
var unitBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

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
	if u.table() && !u.fileEnded {
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
	s := u.queue[0]
	if s.unit != nil {
		if u.rows != nil && u.rows.layout.Get() == nil {
			return step{}, false // none of its rows has values, and nothing tells how long they are
		}
		if !wait && u.encoding <= 2*cap(u.slots) { // more need not wait to be appended
			select {
			case <-s.unit.done:
			default:
				return step{}, false
			}
		}
		<-s.unit.done
		u.encoding--
	}
	u.queue[0] = step{}
	u.queue = u.queue[1:]
	return s, true
}

// drop waits for the units that are being encoded and discards them.
func (u *units) drop() {
	if u.rows != nil {
		u.rows.stop()
	}
	for _, s := range u.queue {
		if s.unit != nil {
			<-s.unit.done
		}
	}
	u.queue, u.encoding = nil, 0
}
