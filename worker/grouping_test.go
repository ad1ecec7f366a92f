package worker

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// batchesOf cuts everything under one budget.
func batchesOf(g grouping, limit budget) (list [][]int) {
	for {
		batch := g.next(limit)
		if len(batch) == 0 {
			return list
		}
		list = append(list, batch)
	}
}

func TestGrouping(t *testing.T) {
	const much = 1 << 30
	for name, test := range map[string]struct {
		costs []int
		sizes []int // default 1 each
		limit budget

		smallest bool
		want     [][]int
	}{
		"nothing":                {limit: budget{records: 2, bytes: much}},
		"longest first":          {costs: []int{1, 9, 2, 8, 3}, limit: budget{records: 2, bytes: much}, want: [][]int{{1, 3}, {2, 4}, {0}}},
		"equal keep their order": {costs: []int{5, 5, 5, 5}, limit: budget{records: 3, bytes: much}, want: [][]int{{0, 1, 2}, {3}}},
		"cost limits records":    {costs: []int{1, 1, 1, 1, 4, 4}, limit: budget{records: 9, bytes: much, cost: 4}, want: [][]int{{4}, {5}, {0, 1, 2, 3}}},
		"a record above the cost is alone": {
			costs: []int{1, 100, 1}, limit: budget{records: 9, bytes: much, cost: 10}, want: [][]int{{1}, {0, 2}},
		},
		"bytes limit records":               {costs: []int{3, 2, 1}, sizes: []int{6, 5, 5}, limit: budget{records: 9, bytes: 10}, want: [][]int{{0}, {1, 2}}},
		"a record above the bytes is alone": {costs: []int{1, 1}, sizes: []int{20, 20}, limit: budget{records: 9, bytes: 10}, want: [][]int{{0}, {1}}},
		"smallest first": {
			costs: []int{1, 9, 2, 8, 3}, limit: budget{records: 2, bytes: much}, smallest: true, want: [][]int{{0, 2}, {3, 4}, {1}},
		},
		"smallest first, cost limits records": {
			costs: []int{4, 4, 1, 1, 1, 1, 1}, limit: budget{records: 9, bytes: much, cost: 4}, smallest: true, want: [][]int{{3, 4, 5, 6}, {2}, {1}, {0}},
		},
		"smallest first, bytes limit records": {
			costs: []int{3, 2, 1}, sizes: []int{5, 5, 6}, limit: budget{records: 9, bytes: 10}, smallest: true, want: [][]int{{2}, {0, 1}},
		},
		"no cost at all": {costs: []int{0, 0, 0}, limit: budget{records: 9, bytes: much, cost: 2}, want: [][]int{{0, 1}, {2}}},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := test.sizes
			if sizes == nil {
				sizes = slices.Repeat([]int{1}, len(test.costs))
			}
			if got := batchesOf(newGrouping(test.costs, sizes, test.smallest), test.limit); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestGroupingFollowsTheBudget(t *testing.T) {
	g := newGrouping([]int{8, 8, 8, 8, 8, 8}, []int{1, 1, 1, 1, 1, 1}, false)
	if got := g.next(budget{records: 3, bytes: 100}); len(got) != 3 {
		t.Fatalf("first batch %v", got)
	}
	if got := g.next(budget{records: 3, bytes: 100, cost: 8}); len(got) != 1 {
		t.Errorf("after shrinking: %v", got)
	}
	g.only(func(i int) bool { return i < 5 })
	if got := g.next(budget{records: 3, bytes: 100}); !slices.Equal(got, []int{4}) {
		t.Errorf("without record 5: %v", got)
	}
}

func TestRoundUp(t *testing.T) {
	for cost, want := range map[int]int{0: 1, 1: 1, 7: 7, 16: 16, 17: 18, 31: 32, 32: 32, 33: 36, 250: 256, 257: 288, 1000: 1024} {
		if got := roundUp(cost); got != want {
			t.Errorf("roundUp(%d) = %d, want %d", cost, got, want)
		}
	}
	shapes := make(map[[2]int]bool)
	for cost := 64; cost <= 1024; cost++ {
		shapes[[2]int{roundUp(cost), countFor(1<<16, cost)}] = true
	}
	if len(shapes) > 33 { // 961 lengths
		t.Errorf("%d shapes", len(shapes))
	}
}

// FuzzGrouping: every record is in exactly one batch, every batch is within its budget, and
// no batch has a record that is larger than one of an earlier batch, or smaller, if the
// smallest come first.
func FuzzGrouping(f *testing.F) {
	f.Add(uint64(1), uint16(100), 8, 1000, int64(500), 40)
	f.Add(uint64(2), uint16(3), 1, 1, int64(0), 1)
	f.Add(uint64(3), uint16(500), 64, 1<<20, int64(1), 1<<20)
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, records, bytes int, cost int64, largest int) {
		if records < 1 || bytes < 1 || cost < 0 || largest < 1 || largest > maxCost || n > 2000 {
			t.Skip()
		}
		random := rand.New(rand.NewPCG(seed, 1))
		costs, sizes := make([]int, n), make([]int, n)
		for i := range costs {
			costs[i], sizes[i] = random.IntN(largest), 1+random.IntN(100)
		}
		var seen []int
		smallest := random.IntN(2) == 0
		batches := batchesOf(newGrouping(costs, sizes, smallest), budget{records, bytes, cost})
		if smallest {
			slices.Reverse(batches)
		}
		least := maxCost
		for _, batch := range batches {
			var of []int
			size := 0
			for _, i := range batch {
				of, size = append(of, costs[i]), size+sizes[i]
			}
			if len(batch) > records || len(batch) > 1 && (size > bytes || cost > 0 && padded(of) > cost) {
				t.Fatalf("a batch of %d records, %d bytes, cost %d", len(batch), size, padded(of))
			}
			if !slices.IsSorted(batch) || slices.Max(of) > least {
				t.Fatalf("batch %v with costs %v after cost %d", batch, of, least)
			}
			least = slices.Min(of)
			seen = append(seen, batch...)
		}
		slices.Sort(seen)
		for i := range int(n) {
			if len(seen) != int(n) || seen[i] != i {
				t.Fatalf("records %v of %d", seen, n)
			}
		}
	})
}
