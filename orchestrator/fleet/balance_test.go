package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator/process"
)

// TestEndSlowest: only the slot that would finish last is asked, and no other until it
// has responded. A slot that has already handed back its rest has nothing to give, and
// does not prevent others from being asked.
func TestEndSlowest(t *testing.T) {
	const slow, slower = 500, 100
	for _, test := range []struct {
		name  string
		slots []member // of 1,000 records in the last second
		asked int      // -1: none
	}{
		{"the slowest", []member{{load: load{size: 1000, done: slow}}, {load: load{size: 1000, done: slower}}}, 1},
		{"one at a time", []member{{load: load{size: 1000, done: slow}}, {load: load{size: 1000, done: slower}, endAsked: true}}, -1},
		{"not who has handed back", []member{{load: load{size: 1000, done: slow}}, {load: load{size: 1000, done: slower}, ending: true}}, 0},
		{"not who has nothing", []member{{load: load{size: 1000, done: slow}}, {}}, 0},
		{"not who is at its end", []member{{load: load{size: 1000, done: 990}}}, -1},
		{"all have handed back", []member{{load: load{size: 1000, done: slower}, ending: true}}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &roster{}
			for i := range test.slots {
				m := test.slots[i]
				m.worker, m.since = &process.Worker{}, time.Now().Add(-time.Second)
				f.members = append(f.members, &m)
			}
			if got := slices.Index(f.members, f.slowest(10)); got != test.asked {
				t.Errorf("worker %d is asked, want %d", got, test.asked)
			}
		})
	}
}

func TestShares(t *testing.T) {
	tests := []struct {
		name                  string
		left, inFlight, batch int64
		own                   float64
		others                []float64
		want                  []int64
	}{
		{"equals", 1000, 0, 10, 5, []float64{5}, []int64{500}},
		{"ten times faster", 1100, 0, 10, 5, []float64{50}, []int64{1000}},
		{"with some in flight", 1000, 200, 10, 5, []float64{5}, []int64{600}},
		{"with more in flight than its share", 1000, 200, 10, 5, []float64{50}, []int64{1000}},
		{"two others", 900, 0, 10, 5, []float64{5, 5}, []int64{300, 300}},
		{"unequal others", 800, 0, 10, 5, []float64{10, 5}, []int64{400, 200}},
		{"its share is rounded down", 110, 0, 100, 5, []float64{5}, []int64{110}},
		{"less than a batch each", 15, 0, 10, 5, []float64{5, 5, 5}, []int64{10, 5}},
		{"a record", 1, 0, 10, 5, []float64{5, 5}, []int64{1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := shares(test.left, test.inFlight, test.batch, test.own, test.others); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestSharesAddUp: no share is empty, and together they do not exceed the total.
func TestSharesAddUp(t *testing.T) {
	for range 10_000 {
		left, batch := 1+rand.Int64N(5000), 1+rand.Int64N(200)
		others := make([]float64, 1+rand.IntN(8))
		for i := range others {
			others[i] = rand.Float64() * 1000
		}
		inFlight, own := rand.Int64N(3)*batch, rand.Float64()*1000
		var sum int64
		for _, share := range shares(left, inFlight, batch, own, others) {
			if sum += share; share <= 0 {
				t.Fatalf("a share of %d", share)
			}
		}
		if sum > left || sum == 0 || (left-sum)%batch != 0 {
			t.Fatalf("%d of %d records are shared, in batches of %d, with speeds %f and %v", sum, left, batch, own, others)
		}
	}
}
