package worker

import "time"

// tuner finds the batch size that computes the most records a second
// (--batch-size auto). It begins with the size that would be used anyway and doubles
// it as long as that helps, the device's memory holds it, and the time for it lasts;
// then it stays with the best. It is a value without a clock: what batches took goes
// in, sizes come out.
type tuner struct {
	size    int // on trial, or, when done, the best
	done    bool
	elapsed time.Duration // of computing

	now  trial
	best trial
	flat int // sizes in a row that did not help
	odd  int // batches in a row of another size than the one on trial
}

// trial is what is known of one size.
type trial struct {
	size, batches, records int
	took                   time.Duration
}

func (t trial) rate() float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(t.records) / t.took.Seconds()
}

const (
	// tuneTime is how long sizes are tried.
	tuneTime = 30 * time.Second
	// A size is judged by so many batches and so much time, the first batch left
	// out: frameworks compile for a new size.
	tuneBatches = 4
	tuneLeast   = 300 * time.Millisecond
	// tuneGain is what makes a size better than the one before.
	tuneGain = 1.05
	// tuneFlat sizes without a gain end the search: one may have been chance.
	tuneFlat = 2
	// tuneOdd batches that are not of the size on trial end it too: chunks, or the
	// bytes of a batch, do not let it grow further.
	tuneOdd = 16
	// maxTuned is no wish for larger batches: memory is bounded otherwise.
	maxTuned = 1 << 16
)

func newTuner(size int) *tuner { return &tuner{size: size} }

// good notes a batch of n records that took so long.
func (t *tuner) good(n int, took time.Duration) {
	if t.done {
		return
	}
	t.elapsed += took
	if n != t.size {
		if t.odd++; t.odd >= tuneOdd || t.elapsed >= tuneTime {
			t.settle()
		}
		return
	}
	t.odd = 0
	if t.now.size != n {
		t.now = trial{size: n}
		return
	}
	t.now.batches++
	t.now.records += n
	t.now.took += took
	if t.now.batches >= tuneBatches && t.now.took >= tuneLeast || t.elapsed >= tuneTime {
		t.judge()
	}
}

// judge decides what follows a size that has been tried.
func (t *tuner) judge() {
	t.flat++
	if t.now.rate() > t.best.rate()*tuneGain {
		t.best, t.flat = t.now, 0
	}
	if t.flat >= tuneFlat || t.elapsed >= tuneTime || 2*t.size > maxTuned {
		t.settle()
		return
	}
	t.size *= 2
}

// full notes that a batch of n records did not fit the device's memory.
func (t *tuner) full(n int) {
	if t.done {
		return
	}
	t.settle()
	if t.size >= n {
		t.size = max(1, n/2)
	}
}

func (t *tuner) settle() {
	t.done = true
	if t.best.size > 0 {
		t.size = t.best.size
	}
}
