package cluster

import "math/bits"

// Share returns how much the attempt's shard may use of something that all shards together
// may use limit of; used is what a committed shard has used. The limit is divided by records,
// and what committed shards have left of their shares is divided among the others.
//
// No process has to know what the others use now: shares never add up to more than the
// limit. What a process knows of commits may be old, but then its share is smaller, because
// each commit of a shard that kept to its share can only enlarge the shares of the rest.
func (a *Attempt) Share(limit int64, used func(Result) int64) int64 {
	left, of := int64(0), a.run.Records
	for shard, result := range a.committed {
		left += a.run.part(limit, shard) - used(result)
		of -= result.Counts.Records
	}
	share := a.run.part(limit, a.Shard)
	if left >= 0 {
		share += scale(left, a.Records, of, 0)
	} else { // a lower limit than before, or one that a shard has exceeded
		share -= scale(-left, a.Records, of, of-1)
	}
	return max(0, share)
}

// scale returns (n*part + round) / of, without overflow; part is at most of.
func scale(n, part, of, round int64) int64 {
	if of <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(part))
	low, carry := bits.Add64(low, uint64(round), 0)
	q, _ := bits.Div64(high+carry, low, uint64(of))
	return int64(q)
}
