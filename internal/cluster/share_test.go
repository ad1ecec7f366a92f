package cluster

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/gpurun/gpurun/chunk"
)

// TestSharesNeverExceedTheLimit: processes compute shards in any order, stop at their share or
// earlier, and know only some of the commits. Together they never use more than the limit, and
// the parts of a run add up to it.
func TestSharesNeverExceedTheLimit(t *testing.T) {
	for round := range 3000 {
		random := rand.New(rand.NewPCG(1, uint64(round)))
		r := &Run{Manifest: Manifest{Shards: 1 + random.IntN(12), First: random.Int64N(5), Records: 1 + random.Int64N(200)}}
		limit := 1 + random.Int64N(400)
		if round%10 == 0 { // neither may overflow
			limit, r.Records = limit<<50, r.Records<<40
		}
		var parts int64
		for i := range r.Shards {
			parts += r.part(limit, i)
		}
		if parts != limit {
			t.Fatalf("%+v: the parts of %d add up to %d", r.Manifest, limit, parts)
		}
		used := func(r Result) int64 { return r.Usage["requests"] }
		committed, spent := make(map[int]Result), make(map[int]int64)
		stale := maps.Clone(committed)
		for range 4 * r.Shards {
			a := &Attempt{run: r, Shard: random.IntN(r.Shards)}
			if _, done := committed[a.Shard]; done {
				continue
			}
			if random.IntN(2) == 0 {
				stale = maps.Clone(committed)
			}
			a.committed = stale
			a.First, a.Records = r.Range(a.Shard)
			if share := a.Share(limit, used); share > spent[a.Shard] {
				spent[a.Shard] += random.Int64N(share-spent[a.Shard]) + random.Int64N(2)
			}
			if random.IntN(3) == 0 {
				committed[a.Shard] = Result{Counts: chunk.Counts{Records: a.Records}, Usage: map[string]int64{"requests": spent[a.Shard]}}
			}
		}
		var total int64
		for _, n := range spent {
			total += n
		}
		if total > limit {
			t.Fatalf("round %d, %+v: %d of %d used: %v", round, r.Manifest, total, limit, spent)
		}
	}
}

// TestShareOfWhatOthersLeft: the last shard may use all that is left.
func TestShareOfWhatOthersLeft(t *testing.T) {
	r := &Run{Manifest: Manifest{Shards: 4, Records: 40}}
	a := &Attempt{run: r, Shard: 3, First: 30, Records: 10, committed: make(map[int]Result)}
	used := func(r Result) int64 { return r.Usage["requests"] }
	if got := a.Share(100, used); got != 25 {
		t.Errorf("its part is %d", got)
	}
	for i, n := range []int64{10, 12, 20} {
		a.committed[i] = Result{Counts: chunk.Counts{Records: 10}, Usage: map[string]int64{"requests": n}}
	}
	if got := a.Share(100, used); got != 58 {
		t.Errorf("the rest is %d", got)
	}
	if got := a.Share(40, used); got != 0 { // the limit was lowered
		t.Errorf("the rest of a lower limit is %d", got)
	}
}
