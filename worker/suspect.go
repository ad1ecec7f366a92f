package worker

import (
	"math/bits"
	"sync"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// suspects are the records of a part that fail in the kernel. A worker cannot tell whether the
// records or its device are at fault, so it reports some of them at once: the first, the
// second, the fourth, and so on. Searching for the bad records of a batch may take long, so
// those that it has isolated are reported before the batch is written.
type suspects struct {
	mu       sync.Mutex
	isolated int64 // in batches that are being searched
	written  int64
	reported int64 // in the last report
}

// suspect counts a failed record, as isolated or written, and reports it if twice as many have failed as at the last
// report.
func (p *partWriter) suspect(count *int64, batch *input.Batch, i int, failure *fault.Error) {
	s := &p.suspects
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	failed := max(s.isolated, s.written)
	if bits.Len64(uint64(failed)) == bits.Len64(uint64(s.reported)) {
		return
	}
	s.reported = failed
	record, _ := batch.Alone(i)
	p.worker.send(wire.Message{Suspect: &wire.Suspect{Chunk: p.assign.ID, Record: record, Failed: failed, Fault: failure}})
}

// faulty returns how many of the records that are written failed in the kernel.
func (s *suspects) faulty() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}
