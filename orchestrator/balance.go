package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
)

// balanceInterval is how often it is looked whether somebody is idle while
// others have much left.
const balanceInterval = 50 * time.Millisecond

// minLeft is how much a worker must have left, in time, to be worth halving.
const minLeft = 200 * time.Millisecond

// balance lets idle workers take half of what the slowest has left, so that no
// slow device holds the end back.
func (j *job) balance(done <-chan struct{}) {
	ticker := time.NewTicker(balanceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if j.queue.idle() > 0 && !j.stopping.Load() {
				j.endSlowest()
			}
		case <-done:
			return
		}
	}
}

// endSlowest asks the worker that would be the last to finish to end its chunk at
// the next batch border. What it has left comes back and is halved.
func (j *job) endSlowest() {
	j.mu.Lock()
	defer j.mu.Unlock()
	var slowest *slotState
	longest := minLeft
	for i := range j.slots {
		s := &j.slots[i]
		if s.worker == nil || s.size == 0 {
			continue
		}
		if s.told {
			return // one at a time: what it gives back may be enough
		}
		if left := s.timeLeft(time.Now(), int64(j.plan.BatchSize)); left > longest {
			slowest, longest = s, left
		}
	}
	if slowest == nil {
		return
	}
	slowest.told = true
	slowest.worker.endChunk()
}

// timeLeft estimates how long a slot needs for the rest of its chunk, without the
// batches that it has in flight: those cannot be taken from it.
func (s *slotState) timeLeft(now time.Time, batch int64) time.Duration {
	left := s.size - s.live.Records - 2*batch
	if left <= 0 {
		return 0
	}
	elapsed := now.Sub(s.since)
	if s.live.Records == 0 {
		return elapsed // it has not finished a batch in that time
	}
	return time.Duration(float64(elapsed) * float64(left) / float64(s.live.Records))
}

// share cuts what a worker left of its chunk, if somebody waits for work: a piece
// for each of those, and one for itself, as large as each is fast, so that all
// come to their end together.
func (j *job) share(slot Slot, rest task) ([]task, error) {
	shares := j.shares(slot, j.queue.idleSlots())
	var tasks []task
	for _, share := range shares {
		batch := int64(j.plan.BatchSize)
		keep := max(1, int64(share*float64(rest.chunk.Records)/float64(batch))) * batch
		piece, behind, err := chunk.SplitAt(rest.chunk, keep)
		if err != nil {
			return nil, err
		}
		if behind.Records == 0 {
			break
		}
		given := rest
		given.chunk, given.notFor = piece, slot.Number+1
		tasks = append(tasks, given)
		rest.chunk = behind
	}
	return append(tasks, rest), nil
}

// shares is how much of a rest each idle slot should get, by the speed that it
// and the slot itself have shown; somebody unknown is as fast as the slot. What
// the shares leave is the slot's own.
func (j *job) shares(slot Slot, idle []int) []float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := j.report.Workers[slot.Number].speed()
	if own == 0 {
		own = 1
	}
	total := own
	var speeds []float64
	for _, number := range idle {
		speed := j.report.Workers[number].speed()
		if speed == 0 {
			speed = own
		}
		speeds = append(speeds, speed)
		total += speed
	}
	for i := range speeds {
		speeds[i] /= total
	}
	return speeds
}
