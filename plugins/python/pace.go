package python

import "time"

// pace decides how many batches to prepare concurrently. The number grows whenever process
// waits, up to the limit.
//
// Threads share one interpreter, and too many of them take it away from the one that feeds
// the GPU. (With a multithreaded tokenizer, four concurrent batches were an eighth slower
// than two; with a single-threaded one, two were too few.) So for threads, after the number
// has grown, one fewer or one more is tried from time to time, and kept if fewer are as
// fast or more are faster.
//
// Processes have a core each, and take nothing away. Their number never shrinks: where
// batches are of unequal length, the trials would be decided by chance, and one fewer would
// be kept too often.
type pace struct {
	threads bool
	wanted  int // batches that may be started and not taken by process yet
	most    int
	clock   func() time.Time

	growing bool
	calm    int // batches taken since process last waited

	count int // batches taken in this window
	began time.Time

	usual    float64 // batches per second
	trying   bool
	step     int
	rest     int // windows until the next trial
	patience int // how many to wait after a failed one
}

const (
	fewestAhead = 2  // least value of wanted
	calmBatches = 64 // batches without waiting after which the number is high enough
	paceWindow  = 32 // batches per rate measurement
	longestRest = 32 // most windows between two trials
	// aheadEach is how many further batches are prepared ahead for each process. In a group
	// of records of unequal size, the largest batch takes as long to prepare as the device
	// needs for 30 average ones.
	aheadEach = 2
)

// newPace returns the pace of threads.
func newPace(limit int, clock func() time.Time) *pace {
	return &pace{threads: true, wanted: fewestAhead, most: limit + fewestAhead, clock: clock, growing: true, step: -1, patience: 1}
}

// newProcessPace returns the pace of processes.
func newProcessPace(limit int) *pace {
	return &pace{wanted: fewestAhead, most: (1+aheadEach)*limit + fewestAhead, growing: true}
}

// waits notes that process waits for a batch while more batches could be started.
func (p *pace) waits() {
	p.calm = 0
	if p.growing {
		p.wanted = min(p.wanted+1, p.most)
	}
}

// taken notes that process has taken a batch.
func (p *pace) taken() {
	if !p.threads {
		return
	}
	if p.growing {
		p.calm++
		p.growing = p.wanted < p.most && p.calm <= calmBatches
		return
	}
	p.count++
	switch p.count {
	case p.most: // all batches started before the last change have passed
		p.began = p.clock()
	case p.most + paceWindow:
		p.judge(paceWindow / max(p.clock().Sub(p.began).Seconds(), 1e-9))
		p.count = 0
	}
}

// judge judges the rate of a completed window.
func (p *pace) judge(rate float64) {
	needed := 1.02
	if p.step < 0 {
		needed = 0.98
	}
	switch {
	case p.trying && rate < p.usual*needed:
		p.wanted, p.step, p.trying = p.wanted-p.step, -p.step, false
		p.patience = min(2*p.patience, longestRest)
		p.rest = p.patience
		return
	case p.trying:
		p.usual, p.patience = max(p.usual, rate), 1
	default:
		changed := rate < 0.8*p.usual
		p.usual, p.rest = rate, p.rest-1
		if p.rest > 0 && !changed {
			return
		}
		p.rest = 0
	}
	if next := p.wanted + p.step; next < fewestAhead || next > p.most {
		p.step = -p.step
	}
	p.wanted, p.trying = p.wanted+p.step, true
}
