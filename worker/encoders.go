package worker

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// parallelValues is from how many numbers on a batch is worth several
	// goroutines: below it they would cost more than they save.
	parallelValues = 32 << 10
	maxEncoders    = 8
)

// encoders make the lines of a batch. Writing out the numbers of wide columns is the
// one thing in a worker that takes longer than computing them may: it is shared by
// several goroutines.
type encoders struct {
	all   []*encoder
	ready []encoded // of the batch at hand, in order; nil: encoded one by one
	// places are those of the batch at hand.
	places *places
}

// encoded is the lines of a range of the records that the kernel saw.
type encoded struct {
	first   int
	text    []byte
	ends    []int // in text, of each record's lines
	refused map[int]*fault.Error
}

func newEncoders(options wire.Records, threads int, seen *columnNames) *encoders {
	e := &encoders{all: make([]*encoder, min(max(threads, 1), maxEncoders))}
	for i := range e.all {
		e.all[i] = newEncoder(options, seen)
	}
	return e
}

// begin encodes the batch ahead of being asked, if that is much work.
func (e *encoders) begin(job *work) {
	e.ready, e.places = e.ready[:0], &job.places
	// A batch that was isolated has results of many calls, and is rare.
	if len(e.all) == 1 || job.verdicts != nil || job.results == nil || numbersIn(job.results) < parallelValues {
		return
	}
	n := len(job.sent)
	share := (n + len(e.all) - 1) / len(e.all)
	for first := 0; first < n; first += share {
		e.ready = append(e.ready, encoded{first: first})
	}
	var group sync.WaitGroup
	for k := range e.ready {
		group.Go(func() { e.all[k].encodeRange(job, &e.ready[k], min(share, n-e.ready[k].first)) })
	}
	group.Wait()
}

// nulls is how many numbers became null since the beginning.
func (e *encoders) nulls() int64 {
	n := int64(0)
	for _, one := range e.all {
		n += one.nulls
	}
	return n
}

// numbersIn is how many numbers the columns of a batch have.
func numbersIn(results *plugins.Results) int {
	n := 0
	for _, column := range results.ColumnList() {
		n += results.Len() * max(1, column.Width)
	}
	return n
}

// encodeRange encodes the next count records from out.first on.
func (e *encoder) encodeRange(job *work, out *encoded, count int) {
	e.buffer = e.buffer[:0]
	out.ends = make([]int, 0, count)
	for i := out.first; i < out.first+count; i++ {
		switch job.results.At(i).Verdict {
		case plugins.Dropped, plugins.Failed: // they have no lines
		default:
			if refusal := e.append(source{job.records[i], i, &job.places}, job.results, i); refusal != nil {
				if out.refused == nil {
					out.refused = make(map[int]*fault.Error)
				}
				out.refused[i] = refusal
			}
		}
		out.ends = append(out.ends, len(e.buffer))
	}
	out.text = e.buffer
}

// encode returns the lines of the i-th record that the kernel saw; they are valid
// until the next call.
func (e *encoders) encode(record []byte, i int, v verdict) ([]byte, *fault.Error) {
	if len(e.ready) == 0 {
		return e.all[0].encode(source{record, i, e.places}, v.results, v.index)
	}
	out := &e.ready[i/len(e.ready[0].ends)]
	if refusal := out.refused[i]; refusal != nil {
		return nil, refusal
	}
	at, start := i-out.first, 0
	if at > 0 {
		start = out.ends[at-1]
	}
	return out.text[start:out.ends[at]], nil
}
