package cluster

import (
	"math"
	"time"
)

// A process that finds nothing else to do may compute a copy of a shard that a slower one is
// still computing, so that a run does not wait for its slowest machine. The copy takes over
// what the other attempt has committed. Both continue; the first commit wins, as always.

// copyGain is how many times sooner a copy must be done than the attempt that it is a copy
// of. What is known of both is an estimate, and a copy uses a machine that could stop.
const copyGain = 1.5

// slowest chooses the running shard that will be done last, if a copy would be done much
// sooner. A shard gets no second copy. It waits for attempts that have just begun.
func (w *worker) slowest(shards []Shard) choice {
	next := choice{shard: -1}
	if w.Copy == nil || w.rate <= 0 {
		return next
	}
	longest := 0.0
	for _, s := range shards {
		if s.State != Running || s.current != s.Claims || s.Copy {
			continue
		}
		theirs := float64(s.Records-s.Reached()) / s.Rate
		if s.Rate <= 0 {
			whole := time.Duration(float64(s.Records) / w.rate * float64(time.Second))
			if s.watched < whole {
				next.wait = next.wait || s.watched < w.watch.lostAfter
				continue
			}
			theirs = math.Inf(1) // it has not begun in the time in which a copy is done
		}
		if theirs <= longest {
			continue
		}
		taken, may := w.Copy(w.run.outputOf(s.Attempt))
		mine := float64(s.Records-taken) / w.rate
		// What is known of the other attempt is as old as its last sign of life.
		if may && theirs > copyGain*mine+beatInterval(w.watch.lostAfter).Seconds() {
			next.shard, longest = s.Index, theirs
		}
	}
	return next
}
