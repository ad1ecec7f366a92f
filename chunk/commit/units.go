package commit

import (
	"bytes"
	"cmp"
	"runtime"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
)

// units cuts the results of an encoded output into units and encodes several at a time,
// while the committer goes on. What is to be done with them waits in a queue, in order.
type units struct {
	codec encode.Codec
	// bytes is the size of a unit, least the size from which it ends with a planned chunk.
	bytes, least int64
	// every ends a unit with every planned chunk, because the output is read while it is
	// written.
	every bool
	open  *pendingUnit // collects results
	begun bool         // the current file has a unit
	since mark         // what was collected since the last mark
	rows  *rowUnits    // of an output with columns, else nil
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
	results  chunk.FileSum   // their results, as their writers computed it
	columns  chunk.PartColumns
}

func newUnits(options Options, every bool, next int64, begun bool) *units {
	size := cmp.Or(options.UnitBytes, options.Format.UnitBytes())
	u := &units{
		codec: options.Format.Codec, bytes: size, least: size / leastShare, every: every, begun: begun, since: mark{first: next},
		slots: make(chan struct{}, min(runtime.GOMAXPROCS(0), encode.MaxEncoders)), finished: make(chan struct{}, 1),
	}
	if options.Layout != nil {
		u.rows = &rowUnits{layout: options.Layout, arrays: options.Arrays, table: options.Format.Table, stopped: make(chan struct{})}
	}
	u.open = u.newUnit()
	return u
}

func (u *units) newUnit() *pendingUnit { return &pendingUnit{codec: u.codec, format: u.rows} }

// table reports whether the output is a table.
func (u *units) table() bool { return u.rows != nil && u.rows.table }

// most is how many units may wait to be appended.
func (u *units) most() int { return 2 * cap(u.slots) }

// take collects the results of a segment and ends units as they become long enough. It calls
// ended after each.
func (u *units) take(path string, s chunk.Segment, ended func() error) error {
	size := s.Files[chunk.Results].Bytes
	for at := int64(0); at < size; {
		end := size
		missing := u.bytes - u.open.raw
		whole := size-at >= missing
		if whole {
			var err error
			if end, err = lineEnd(path, at+missing-1, size); err != nil {
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
	u.takeSegment(s)
	return nil
}

// endChunk ends the unit with a planned chunk if it is long enough or must end. It reports
// whether nothing is left in it.
func (u *units) endChunk(must bool) bool {
	if u.open.raw > 0 && (must || u.every || u.open.raw >= u.least) {
		u.end()
	}
	return u.open.raw == 0
}

// end ends the unit and begins to encode it.
func (u *units) end() {
	unit := u.open
	u.open, u.begun = u.newUnit(), true
	unit.done = make(chan struct{})
	u.queue = append(u.queue, step{unit: unit})
	u.encoding++
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
		unit.err = unit.encodeAll(unit.data)
		close(unit.done)
		select {
		case u.finished <- struct{}{}:
		default:
		}
	}()
}

// unitBuffers hold encoded units.
var unitBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// reach puts a mark at the end of the queue.
func (u *units) reach(d Durable) {
	m := u.since
	m.Durable = d
	u.queue = append(u.queue, step{mark: &m})
	u.since = mark{first: d.Next}
}

// beginPart puts the beginning of a part at the end of the queue.
func (u *units) beginPart(name string) {
	u.queue = append(u.queue, step{part: name})
	u.begun, u.fileEnded = false, false
}

// next returns the next step if it can be performed now or must be waited for.
func (u *units) next(wait bool) (step, bool) {
	if len(u.queue) == 0 {
		return step{}, false
	}
	s := u.queue[0]
	if s.unit != nil && u.rows != nil && u.rows.layout.Get() == nil {
		return step{}, false // none of its rows has values, and nothing tells how long they are
	}
	if s.unit != nil {
		if !wait && u.encoding <= u.most() {
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
