package worker

import "time"

// tuner finds the batch size that computes the most records per second (--batch-size auto).
// It starts with the default size and doubles it while that helps, fits in device memory,
// and there is time left; then it keeps the best. It does not read a clock: batch durations
// go in, sizes come out.
type tuner struct {
	size    int // on trial or, when done, the best
	done    bool
	elapsed time.Duration // spent computing

	current trial
	best    trial
	flat    int // consecutive sizes that did not help
	odd     int // consecutive batches of a size other than the one on trial
}

// trial is what is known about one size.
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
	// tuneTime is how long to try sizes.
	tuneTime = 30 * time.Second
	// A size is judged after this many batches and this much time, without its first batch:
	// frameworks compile for a new size.
	tuneBatches = 4
	tuneLeast   = 300 * time.Millisecond
	// tuneGain is how much faster a size must be to count as better.
	tuneGain = 1.05
	// tuneFlat sizes without a gain end the search; a single one may be noise.
	tuneFlat = 2
	// tuneOdd batches of other sizes also end it: the chunk size or the byte limit of a
	// batch prevents further growth.
	tuneOdd = 16
	// maxTuned is the largest size to try.
	maxTuned = 1 << 16
)

func newTuner(size int) *tuner { return &tuner{size: size} }

// good records a batch, or the batches of a window: only whole windows of grouped records
// can be compared, because their batches differ in length by design.
func (t *tuner) good(of trial) {
	if t.done {
		return
	}
	t.elapsed += of.took
	if of.size != t.size {
		if t.odd++; t.odd >= tuneOdd || t.elapsed >= tuneTime {
			t.finish()
		}
		return
	}
	t.odd = 0
	if t.current.size != of.size {
		t.current = trial{size: of.size}
		return
	}
	t.current.batches += of.batches
	t.current.records += of.records
	t.current.took += of.took
	if t.current.batches >= tuneBatches && t.current.took >= tuneLeast || t.elapsed >= tuneTime {
		t.judge()
	}
}

// judge decides what to do after a size has been tried.
func (t *tuner) judge() {
	t.flat++
	if t.current.rate() > t.best.rate()*tuneGain {
		t.best, t.flat = t.current, 0
	}
	if t.flat >= tuneFlat || t.elapsed >= tuneTime || 2*t.size > maxTuned {
		t.finish()
		return
	}
	t.size *= 2
}

// full records that a batch of n records did not fit in device memory.
func (t *tuner) full(n int) {
	if t.done {
		return
	}
	t.finish()
	if t.size >= n {
		t.size = max(1, n/2)
	}
}

func (t *tuner) finish() {
	t.done = true
	if t.best.size > 0 {
		t.size = t.best.size
	}
}
