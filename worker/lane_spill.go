package worker

import (
	"encoding/json"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/worker/early"
)

// A slow record must not stall the others, however many are answered meanwhile. Their answers
// are in the log. Once much is held in memory, a group that is complete but not next to be
// written is spilled: only its position remains. When its turn comes, its records are read
// again.

// span is a run of records of a chunk whose answers are in the log.
type span struct {
	from    chunk.Chunk // what remains of the chunk from its first record on
	records int64
}

// spillShare is the share of the memory for groups from which groups are spilled.
const spillShare = 4

// complete follows up on records of a group that were settled: if those were the last ones, it
// writes the group, or spills it if its turn has not come and memory is short.
func (c *concurrent) complete(g *group) error {
	switch l := g.lane; {
	case g.open > 0:
		return nil
	case g != l.groups[0] && !c.loop.lanes.holdLess(spillShare, c.throttle.full):
		return l.spill(g)
	default:
		return l.advance()
	}
}

// spill releases the memory of a complete group.
func (l *lane) spill(g *group) error {
	task := g.task
	for i, at := range task.sent {
		if err := logFailure(l.log, task.batch.Records[at].Index, task.verdicts[i].fault); err != nil {
			return err
		}
	}
	for _, took := range task.batches {
		l.out.late.Add(took)
	}
	l.held.add(-task.load.records, -task.load.bytes)
	g.spilled = &span{from: task.batch.From(0), records: int64(len(task.batch.Records))}
	l.reader.recycle(task.batch)
	g.task = nil
	l.groups = l.groups.merge(g)
	return nil
}

// merge unites a spilled group with spilled neighbors.
func (gs groups) merge(g *group) groups {
	at, _ := slices.BinarySearchFunc(gs, g.first, func(other *group, first int64) int { return int(other.first - first) })
	for _, i := range []int{at + 1, at} { // into the group before it
		if i > 0 && i < len(gs) && gs[i].spilled != nil && gs[i-1].spilled != nil {
			gs[i-1].spilled.records += gs[i].spilled.records
			gs = slices.Delete(gs, i, i+1)
		}
	}
	return gs
}

// spilled reports whether the next records to write are spilled.
func (gs groups) spilled() bool { return len(gs) > 0 && gs[0].spilled != nil }

const (
	// rereadRecords and rereadBytes are how many records, and bytes of their answers, are
	// read again at a time: the kernel waits meanwhile.
	rereadRecords = 256
	rereadBytes   = 8 << 20
)

// reread writes the next records of a spilled group at the head of the lane.
func (l *lane) reread() error {
	s := l.groups[0].spilled
	n := 0
	for size := 0; int64(n) < min(s.records, rereadRecords) && size < rereadBytes; n++ {
		size += l.log.Length(s.from.First + int64(n))
	}
	task, err := l.readAgain(s.from, n)
	if err != nil {
		return err
	}
	s.from, s.records = task.batch.Rest(), s.records-int64(len(task.batch.Records))
	if err := l.write(task); err != nil {
		return err
	}
	if s.records > 0 {
		return nil
	}
	l.groups = l.groups[1:]
	return l.advance()
}

// readAgain reads up to n answered records and their answers.
func (l *lane) readAgain(from chunk.Chunk, n int) (*batchTask, error) {
	reader, err := l.worker.openReader(from)
	if err != nil {
		return nil, err
	}
	defer reader.reader.Close()
	reader.fetch, reader.taken, reader.free = nil, l.reader.taken, l.reader.free
	batch := reader.empty()
	if err := reader.reader.Read(batch, n, reader.options.BatchBytes); err != nil {
		return nil, err
	}
	task, err := reader.prepare(l.ctx, batch)
	if err != nil {
		return nil, err
	}
	task.lane, task.verdicts = l, make([]verdict, len(task.sent))
	for i, at := range task.sent {
		if task.verdicts[i], err = logged(l.log, batch.Records[at].Index); err != nil {
			return nil, err
		}
	}
	return task, nil
}

// logged returns the verdict of a record whose answer, or failure, is in the log.
func logged(log *early.Log, number int64) (verdict, error) {
	a, err := log.Get(number)
	if err == nil && a.Verdict == early.Failure {
		failure := new(fault.Error)
		err = json.Unmarshal(a.Lines[0], failure)
		return verdict{fault: failure}, fault.JobFiles.Wrap(err)
	}
	return verdict{results: plugins.Answer{Verdict: plugins.Verdict(a.Verdict), Lines: a.Lines, Nulls: a.Nulls}.Results()}, fault.JobFiles.Wrap(err)
}

// logFailure keeps why a record failed, nil if it did not, for when it is written.
func logFailure(log *early.Log, number int64, failure *fault.Error) error {
	if failure == nil {
		return nil
	}
	data, err := json.Marshal(failure)
	if err == nil {
		err = log.Put(number, early.Answer{Verdict: early.Failure, Lines: [][]byte{data}})
	}
	return fault.JobFiles.Wrap(err)
}
