package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/chunk/input"
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

// balance hands remaining work of the slowest worker to idle ones, so that no slow
// device delays the end of the job.
func (j *job) balance(done <-chan struct{}) {
	ticker := time.NewTicker(balanceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if j.stopping.Load() {
				continue
			}
			j.checkScarce()
			if j.queue.idle() > 0 {
				j.endSlowest()
			}
		case <-done:
			return
		}
	}
}

// checkScarce notifies every worker, once, that the job is nearing its end.
func (j *job) checkScarce() {
	total := j.ledger.total()
	if total < 0 || !j.queue.dry() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if scarceShare*(total-j.ledger.done().Records) > total {
		return
	}
	for i := range j.slots {
		if s := &j.slots[i]; s.worker != nil && s.scarce != s.worker {
			s.scarce = s.worker
			s.worker.sendDraining()
		}
	}
}

// endSlowest asks the worker that would finish last to end its chunk at the next batch
// boundary. The part it has not started comes back at once and is shared.
func (j *job) endSlowest() {
	j.mu.Lock()
	defer j.mu.Unlock()
	var slowest *slotState
	longest := minRemaining
	for i := range j.slots {
		s := &j.slots[i]
		if s.worker == nil || s.size == 0 || s.ending {
			continue
		}
		if s.endAsked {
			return // one at a time: what it gives back may be enough
		}
		if left := s.timeLeft(time.Now(), int64(j.plan.BatchSize)); left > longest {
			slowest, longest = s, left
		}
	}
	if slowest == nil {
		return
	}
	slowest.endAsked = true
	slowest.worker.endChunk()
}

// timeLeft estimates how long a slot needs for the rest of its chunk, not counting the
// batches in flight, which cannot be taken from it.
func (s *slotState) timeLeft(now time.Time, batch int64) time.Duration {
	window := int64(2)
	if s.scarce != nil {
		window = 1
	}
	left := s.size - s.done - window*batch
	if left <= 0 {
		return 0
	}
	elapsed := now.Sub(s.since)
	if s.done == 0 {
		return elapsed // it has not finished a batch in that time
	}
	return time.Duration(float64(elapsed) * float64(left) / float64(s.done))
}

// share splits the rest of a worker's chunk among the idle slots, keeping one piece for
// the worker, so that all finish together. Without idle slots the rest stays whole.
// inFlight is the number of records the worker must finish first.
func (j *job) share(slot Slot, rest task, inFlight int64) ([]task, error) {
	idle := j.queue.idleSlots()
	if len(idle) == 0 {
		return []task{rest}, nil
	}
	own, speeds := j.speeds(slot, idle)
	var tasks []task
	for _, records := range shares(rest.chunk.Records, inFlight, int64(j.plan.BatchSize), own, speeds) {
		piece, remainder, err := input.SplitAt(rest.chunk, records)
		if err != nil {
			return append(tasks, rest), err
		}
		given := rest
		given.chunk, given.notFor = piece, slot.Number+1
		tasks = append(tasks, given)
		if rest.chunk = remainder; remainder.Records == 0 {
			return tasks, nil
		}
	}
	return append(tasks, rest), nil
}

// speeds returns the measured speed of the slot and of the idle slots, in records per
// second. A slot without measurements counts as being as fast as this one.
func (j *job) speeds(slot Slot, idle []int) (own float64, others []float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, w := &j.slots[slot.Number], &j.slots[slot.Number].report
	records, busy := w.Records, w.Busy
	if s.size > 0 { // its chunk is not booked yet; count at least one batch
		records, busy = records+max(s.done, int64(j.plan.BatchSize)), busy+time.Since(s.since)
	}
	own = max(rate(records, busy), 1e-9)
	for _, number := range idle {
		speed := j.slots[number].report.speed()
		if speed == 0 {
			speed = own
		}
		others = append(others, speed)
	}
	return own, others
}

// shares returns how many of the remaining records each of the other slots should get,
// in whole batches, so that all slots finish together. The slot itself first finishes
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
