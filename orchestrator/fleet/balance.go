package fleet

import (
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/orchestrator/queue"
)

const (
	// balanceInterval is how often balance looks for idle workers while others have
	// much work remaining.
	balanceInterval = 10 * time.Millisecond
	// minRemaining is how much time a worker's remaining work must take to be worth sharing.
	minRemaining = 50 * time.Millisecond
	// scarceShare: once less than 1/scarceShare of the job remains and the queue is
	// empty, workers no longer keep batches waiting.
	scarceShare = 8
)

// balance hands remaining work of the slowest worker to idle ones, so that no slow device
// delays the end of the job, and notifies all workers when that is near.
func (f *Fleet) balance(done <-chan struct{}) {
	ticker := time.NewTicker(balanceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !f.state.running() {
				continue
			}
			idle, dry := f.queue.Idle()
			if total := f.ledger.total(); total >= 0 && dry && scarceShare*(total-f.ledger.done().Records) <= total {
				f.roster.notifyEnd()
			}
			if len(idle) > 0 {
				f.roster.endSlowest(int64(f.BatchSize))
			}
		case <-done:
			return
		}
	}
}

// share splits the rest of a worker's chunk among the idle slots, keeping one piece for
// the worker, so that all finish together. Without idle slots the rest stays whole.
// inFlight is the number of records the worker must finish first.
func (f *Fleet) share(m *member, rest queue.Task, inFlight int64) ([]queue.Task, error) {
	idle, _ := f.queue.Idle()
	if len(idle) == 0 {
		return []queue.Task{rest}, nil
	}
	own, speeds := f.roster.speeds(m, idle, int64(f.BatchSize))
	every := rest.Chunk.Every(f.BatchSize, f.Window)
	var tasks []queue.Task
	for _, records := range shares(rest.Chunk.Records, inFlight, every, own, speeds) {
		piece, remainder, err := input.SplitAt(rest.Chunk, rest.Chunk.Border(max(0, records-1), every))
		if err != nil {
			return append(tasks, rest), err
		}
		given := rest
		given.Chunk, given.NotFor = piece, m.slot.Number+1
		tasks = append(tasks, given)
		if rest.Chunk = remainder; remainder.Records == 0 {
			return tasks, nil
		}
	}
	return append(tasks, rest), nil
}

// shares returns how many of the remaining records each of the other slots should get,
// in whole batches or windows, so that all slots finish together. The slot itself first finishes
// its batches in flight and keeps what is not given away. A slow slot's share is
// rounded down, since its batches take longest.
func shares(left, inFlight, batch int64, own float64, others []float64) []int64 {
	var all float64
	for _, speed := range others {
		all += speed
	}
	end := float64(left+inFlight) / (own + all) // seconds from now
	keep := max(0, int64(end*own)-inFlight) / batch * batch
	give := left - min(keep, left)
	var list []int64
	for i, speed := range others {
		share := give
		if i < len(others)-1 {
			share = min(give, max(1, int64(speed/all*float64(give)+0.5)/batch)*batch)
		}
		if share == 0 {
			break
		}
		list = append(list, share)
		give -= share
		all -= speed
	}
	return list
}
