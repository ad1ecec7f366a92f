package scaling

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// point is a number of workers, the rate that they reached, and how busy the GPU was.
type point struct {
	workers int
	rate    rate
	busy    float64
}

// factor returns by which factor the workers of b are more than those of p.
func (p point) factor(b point) float64 { return float64(b.workers) / float64(p.workers) }

// least returns the gain that a step from p to b must bring.
func (p point) least(b point) float64 { return math.Pow(1+keepGain, math.Log2(p.factor(b))) - 1 }

// Search looks for the best number of workers of one device. Its zero value is not
// usable: call Up or Down.
type Search struct {
	down    bool
	wanted  int
	first   int // workers at the start
	cap     int // no more workers than this: more did not fit; 0 for none
	window  window
	seen    []point // in this search
	middle  bool    // the midpoint is being tried
	jumped  bool    // workers were added before anything was measured, which happens once
	early   bool    // those load, or have not been measured yet
	alone   rate    // of the first worker, while those load
	settled bool

	ooms, refused int
	others        uint64
	rested        time.Duration // when the search settled
	found         rate          // at that time
	idle          float64       // the fewest idle cores since then; negative if unknown
	looks         int           // searches that idle cores have caused
	odd           int           // windows since then that looked different
	lost          time.Duration // since when workers are missing
	held          int           // the rule, counted from 1, that forbids growth for now; 0 for none
}

// Up returns a search that starts with this many workers and adds more. If it is
// settled, as in a resumed job, it only watches for changes.
func Up(workers int, settled bool) *Search {
	return &Search{wanted: max(1, workers), settled: settled, idle: -1}
}

// Down returns a search that starts with as many workers as there are and removes some
// if they compete for cores.
func Down(workers int) *Search {
	return &Search{down: true, wanted: max(1, workers), first: max(1, workers), idle: -1}
}

// Step takes the device's current figures and decides. It needs them at least twice a second while it
// searches, and less often once it has settled.
func (s *Search) Step(f Figures) Decision {
	if d, removed := s.relieve(f); removed {
		return d
	}
	if more := earlyTarget(f, s.cap); s.growsEarly(f, more) {
		s.jumped, s.early = true, true
		return s.change(more, "one worker leaves the GPU and the cores mostly idle")
	}
	if !s.complete(f) {
		return s.whileLoading(f)
	}
	measured, known := s.window.add(f, s.enough)
	if !known {
		return s.keep()
	}
	f = s.window.average()
	if s.settled {
		return s.watch(f, measured)
	}
	return s.decide(f, measured)
}

// growsEarly reports whether to add workers before the rate of the first one is known, which takes
// seconds: a short job has few. Its first batch may take long, too: frameworks compile, and load parts
// of themselves. Others then take as long, so that they had better begin at once.
func (s *Search) growsEarly(f Figures, more int) bool {
	if s.down || s.settled || s.jumped || s.wanted > 1 || len(s.seen) > 0 || f.Workers+f.Loading != 1 || f.Unsteady ||
		f.Load > earlyLoad || f.GPUBusy < 0 || f.GPUBusy > earlyBusy || more < 2 {
		return false
	}
	if f.Workers == 0 {
		return f.Cold > 0
	}
	f.fed, f.expected = 1, firstExpected
	number, _ := objection(f, more)
	return number == 0
}

// whileLoading measures the first worker while those load that were added early: what they bring is
// compared with its rate. They are not needed if it keeps the GPU busy by itself.
func (s *Search) whileLoading(f Figures) Decision {
	if !s.early || f.Workers != 1 {
		return s.keep()
	}
	if f.GPUBusy >= busyGPU {
		s.early = false
		return s.change(1, fmt.Sprintf("the GPU is %.0f%% busy", 100*f.GPUBusy))
	}
	f.Loading = 0
	if measured, known := s.window.add(f, func(Figures, rate) bool { return true }); known {
		s.alone = measured
	}
	return s.keep()
}

// enough reports whether a rate is certain enough for what depends on it: whether the last step is
// kept, and, for a rate that others will be compared with, how far the next step goes.
func (s *Search) enough(f Figures, measured rate) bool {
	last := len(s.seen) - 1
	switch {
	case s.settled:
		return false
	case s.down:
		return measured.err <= nearlyDown/2
	case s.middle:
		return measured.err <= nearly
	}
	here, next := point{workers: f.Workers}, point{workers: target(f, s.cap)}
	if next.workers > here.workers && measured.err > precision(f)*(here.factor(next)-1) {
		return false
	}
	return last < 0 || s.seen[last].workers == f.Workers || s.seen[last].rate.exceeds(measured, s.seen[last].least(here))
}

// Good returns the number of workers that was best so far, and whether it is final: where
// a resumed job starts.
func (s *Search) Good() (workers int, settled bool) {
	if s.settled || len(s.seen) == 0 {
		return s.wanted, s.settled
	}
	return s.best().workers, false
}

// Refuse takes back the last decision to add workers, and settles.
func (s *Search) Refuse(f Figures, why string) Decision {
	s.wanted = max(1, f.Workers)
	return s.settle(f, rate{}, why)
}

func (s *Search) keep() Decision { return Decision{Workers: s.wanted, Settled: s.settled} }

// relieve removes workers when memory runs out.
func (s *Search) relieve(f Figures) (Decision, bool) {
	failed, why := f.OOMs-s.ooms+f.Refused-s.refused, "memory ran out with more"
	if f.Refused > s.refused {
		why = "the kernel does not open more often"
	}
	s.ooms, s.refused = f.OOMs, f.Refused
	have := f.Workers + f.Loading
	switch {
	case failed > 0 && s.wanted > 1:
		s.wanted = max(1, min(s.wanted, have)-failed)
		s.cap = s.wanted
		return s.settle(f, rate{}, why), true
	case f.HostFree > 0 && f.HostFree < leastFree && f.Loading == 0 && f.Workers == s.wanted && s.wanted > 1:
		s.wanted--
		s.cap = s.wanted
		return s.settle(f, rate{}, fmt.Sprintf("only %d MiB of host memory are left", f.HostFree>>20)), true
	}
	return Decision{}, false
}

// lostAfter is how long missing workers are waited for.
const lostAfter = 30 * time.Second

// complete reports whether all wanted workers compute. Workers that stay away, because
// their processes cannot be started, are no longer wanted.
func (s *Search) complete(f Figures) bool {
	if f.Workers == s.wanted && f.Loading == 0 {
		s.lost = 0
		return true
	}
	if !s.early || f.Workers != 1 {
		s.window.reset()
	}
	if f.Workers == 0 || f.Loading > 0 || f.Workers > s.wanted { // those will leave
		s.lost = 0
		return false
	}
	if s.lost == 0 {
		s.lost = f.Time
	}
	if f.Time-s.lost >= lostAfter {
		s.wanted, s.cap, s.lost = f.Workers, f.Workers, 0
		s.seen = nil
	}
	return false
}

// decide decides after the current count has been measured.
func (s *Search) decide(f Figures, measured rate) Decision {
	blind := s.early && s.alone.records > 0
	if blind {
		s.seen = append(s.seen, point{workers: 1, rate: s.alone})
	}
	s.early = false
	again := len(s.seen) > 0 && s.seen[len(s.seen)-1].workers == f.Workers
	if again {
		s.seen = s.seen[:len(s.seen)-1]
	}
	s.seen = append(s.seen, point{f.Workers, measured, f.GPUBusy})
	if s.down {
		return s.decideDown(f)
	}
	if base, tried := s.base(), s.seen[len(s.seen)-1]; base.workers != tried.workers && !again {
		if s.middle || base.rate.gain(tried.rate) < base.least(tried) {
			return s.afterFlat(f, base, tried)
		}
	}
	s.expect(&f)
	more := target(f, s.cap)
	if number, why := objection(f, more); number > 0 {
		if middle := f.Workers / 2; blind && middle > 1 && f.expected < steep && pays(f, middle, middleGain) {
			return s.tryMiddle(middle)
		}
		return s.hold(f, number, why)
	}
	return s.change(more, s.brought())
}

// expect adds what the last step lets expect of the next one.
func (s *Search) expect(f *Figures) {
	f.expected = firstExpected
	if len(s.seen) < 2 {
		return
	}
	base, last := s.base(), s.seen[len(s.seen)-1]
	grown := 1 + base.rate.gain(last.rate)
	f.expected = math.Log(grown) / math.Log(base.factor(last))
	f.outgrown = base.busy > 0 && grown > (1+base.least(last))*last.busy/base.busy
}

// hold keeps the current count for as long as a rule forbids growth.
func (s *Search) hold(f Figures, number int, why string) Decision {
	if number == s.held || s.held > 0 && number == ruleTime {
		why = "" // known; that time runs out is not the reason
	} else {
		s.held = number
	}
	s.window.next(f)
	return Decision{Workers: s.wanted, Reason: why, Settled: true}
}

// base returns the count that the last one is compared with.
func (s *Search) base() point {
	if len(s.seen) < 2 {
		return s.seen[len(s.seen)-1]
	}
	if s.middle {
		return s.seen[len(s.seen)-3]
	}
	return s.seen[len(s.seen)-2]
}

// afterFlat tries the midpoint once after a step that brought too little, and settles.
func (s *Search) afterFlat(f Figures, base, tried point) Decision {
	if middle := (base.workers + tried.workers) / 2; !s.middle && middle > base.workers && middle < tried.workers && pays(f, middle, middleGain) {
		return s.tryMiddle(middle)
	}
	best := s.best()
	s.wanted = best.workers
	return s.settle(f, best.rate, s.next(best))
}

func (s *Search) tryMiddle(workers int) Decision {
	why := s.brought() + "; trying the midpoint"
	s.middle = true
	return s.change(workers, why)
}

// decideDown halves the workers while they compete for cores and fewer are not slower.
func (s *Search) decideDown(f Figures) Decision {
	last := s.seen[len(s.seen)-1]
	if len(s.seen) > 1 && s.seen[len(s.seen)-2].rate.gain(last.rate) < -nearlyDown {
		best := s.seen[len(s.seen)-2]
		s.wanted = best.workers
		return s.settle(f, best.rate, fmt.Sprintf("%d were %.0f%% slower", last.workers, -100*best.rate.gain(last.rate)))
	}
	fewer := f.Workers / 2
	switch {
	case fewer < 1:
		return s.settle(f, last.rate, s.brought())
	case f.Runnable <= crowd*f.Cores, !pays(f, fewer, middleGain):
		return s.settle(f, last.rate, "")
	}
	return s.change(fewer, fmt.Sprintf("%.0f threads compete for %.0f cores", f.Runnable, f.Cores))
}

// best returns the smallest count that is nearly as fast as the best one.
func (s *Search) best() point {
	points := slices.Clone(s.seen)
	slices.SortStableFunc(points, func(a, b point) int { return a.workers - b.workers })
	top := points[0]
	for _, p := range points {
		if top.rate.gain(p.rate) > 0 {
			top = p
		}
	}
	for _, p := range points {
		if p.rate.gain(top.rate) <= nearly {
			return p
		}
	}
	return top
}

// brought says what the last step changed.
func (s *Search) brought() string {
	if len(s.seen) < 2 {
		return "the rate is steady"
	}
	last, base := s.seen[len(s.seen)-1], s.base()
	return fmt.Sprintf("%d brought %+.0f%%", last.workers, 100*base.rate.gain(last.rate))
}

// next says what the next larger count that was tried would bring.
func (s *Search) next(p point) string {
	var larger *point
	for i, other := range s.seen {
		if other.workers > p.workers && (larger == nil || other.workers < larger.workers) {
			larger = &s.seen[i]
		}
	}
	if larger == nil {
		return s.brought()
	}
	return fmt.Sprintf("%d brought %.0f%%", larger.workers, 100*p.rate.gain(larger.rate))
}

func (s *Search) change(workers int, why string) Decision {
	s.wanted, s.held = workers, 0
	s.window.reset()
	return Decision{Workers: workers, Reason: why}
}

// settle ends the search.
func (s *Search) settle(f Figures, found rate, why string) Decision {
	s.settled, s.middle, s.early, s.seen = true, false, false, nil
	s.rested, s.found, s.others, s.odd, s.idle = f.Time, found, f.Others, 0, -1
	s.window.reset()
	return Decision{Workers: s.wanted, Reason: why, Settled: true}
}

// watch looks for a reason to search again.
func (s *Search) watch(f Figures, measured rate) Decision {
	s.window.next(f)
	if s.idle < 0 || f.IdleCores < s.idle {
		s.idle = f.IdleCores
	}
	if s.found == (rate{}) {
		s.found, s.others = measured, f.Others
		return s.keep()
	}
	why, freed := "", s.coresFreed(f)
	switch {
	case differs(s.found.size(), measured.size()):
		why = "the records have changed in size"
	case differs(s.found.records, measured.records):
		why = "the rate has changed"
	case s.crowdChanged(f):
		why = "other jobs on the device have changed"
	case freed:
		why = "other processes use fewer CPU cores"
	default:
		s.odd = 0
		return s.keep()
	}
	if s.odd++; s.odd < 2 || f.Time-s.rested < restTime || s.down && !freed {
		return s.keep()
	}
	if s.crowdChanged(f) { // what did not fit may fit now
		s.cap = 0
	}
	s.expect(&f)
	more := target(f, s.cap)
	if s.down {
		more = s.first
	}
	if number, _ := objection(f, more); number > 0 {
		s.rested, s.found, s.others, s.odd = f.Time, measured, f.Others, 0
		return s.keep()
	}
	if freed {
		s.looks++
	}
	s.settled, s.seen = false, nil
	s.window.reset()
	if s.down {
		s.wanted = more
	}
	return Decision{Workers: s.wanted, Reason: why + ": measuring again"}
}

// coresFreed reports whether cores are idle that others used when the search settled, or later. Each
// search may end as the last one did, so only a few count.
func (s *Search) coresFreed(f Figures) bool {
	return s.looks < mostLooks && s.idle >= 0 && f.IdleCores-s.idle > max(leastFreed, otherShare*f.Cores)
}

func (s *Search) crowdChanged(f Figures) bool {
	total := f.DeviceFree + f.Others + uint64(f.Workers)*f.DeviceEach
	moved := max(f.Others, s.others) - min(f.Others, s.others)
	return total > 0 && float64(moved) > otherShare*float64(total)
}

func differs(a, b float64) bool { return a > 0 && b > 0 && max(a/b, b/a) > changed }
