package cluster

// A process that finds nothing else to do may compute a copy of a shard that a slower one is
// still computing, so that a run does not wait for its slowest machine. The copy takes over
// what the other attempt has committed. Both continue; the first commit wins, as always.

// copyGain is how many times sooner a copy must be done than the attempt that it is a copy
// of. What is known of both is an estimate, and a copy uses a machine that could stop.
const copyGain = 1.5

// slowest returns the running shard that will be done last, if a copy would be done much
// sooner; -1 if there is none. A shard gets no second copy.
func (w *worker) slowest(shards []Shard) int {
	found, longest := -1, 0.0
	if w.Copy == nil || w.rate <= 0 {
		return found
	}
	for _, s := range shards {
		if s.State != Running || s.Rate <= 0 || s.current != s.Claims || s.Copy {
			continue
		}
		theirs := float64(s.Records-s.Done) / s.Rate
		if theirs <= longest {
			continue
		}
		taken, may := w.Copy(w.run.outputOf(s.Attempt))
		mine := float64(s.Records-taken) / w.rate
		// What is known of the other attempt is as old as its last sign of life.
		if may && theirs > copyGain*mine+beatInterval(w.watch.lostAfter).Seconds() {
			found, longest = s.Index, theirs
		}
	}
	return found
}
