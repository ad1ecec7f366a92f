package worker

import "testing"

func TestCostLimit(t *testing.T) {
	c := costLimit{want: 1000}
	if c.good(900); c.cost() != 1000 {
		t.Errorf("before any failure: %d", c.cost())
	}
	if c.shrink(800); c.cost() != 400 {
		t.Errorf("after a failure: %d", c.cost())
	}
	if c.shrink(1000); c.cost() != 400 { // a piece of a larger batch that failed too
		t.Errorf("after a larger failure: %d", c.cost())
	}
	for range 10 * growAfter {
		c.good(100)
	}
	if c.cost() != 400 {
		t.Errorf("small batches raised it to %d", c.cost())
	}
	for range growAfter {
		c.good(390)
	}
	if c.cost() != 450 {
		t.Errorf("after %d good batches: %d", growAfter, c.cost())
	}
	for range 20 * growAfter {
		c.good(c.cost())
	}
	if c.cost() != 1000 {
		t.Errorf("in the end: %d", c.cost())
	}
	if c.shrink(1); c.cost() != 1 {
		t.Errorf("a single cheap record: %d", c.cost())
	}
}
