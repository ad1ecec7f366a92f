package procs

import "testing"

// The number follows the use: up at once, down after a while, and never out of its bounds.
func TestFollow(t *testing.T) {
	n := number{now: 1, most: 6}
	for _, step := range []struct {
		used  float64
		turns int
		want  int
	}{
		{0.1, 50, 1}, {0.9, 1, 2}, {1.9, 1, 4}, {3.9, 1, 6}, {5.9, 3, 6},
		{3, 100, 6}, // neither busy nor idle
		{1, idleTurns - 1, 6}, {1, 1, 3},
		{0.1, idleTurns, 1}, {0.1, 100, 1},
	} {
		for range step.turns {
			n.follow(step.used)
		}
		if n.now != step.want {
			t.Fatalf("%+v: %d processors", step, n.now)
		}
	}
}
