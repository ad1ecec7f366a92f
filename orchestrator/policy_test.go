package orchestrator

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestDecide(t *testing.T) {
	start := time.Now()
	tests := []struct {
		name   string
		kind   fault.Kind
		opened bool
		losses []time.Duration // ago
		want   action
	}{
		{"first crash", fault.Worker, true, nil, restart},
		{"fourth crash", fault.Worker, true, ago(1, 2, 3), restart},
		{"fifth crash", fault.Worker, true, ago(1, 2, 3, 4), retire},
		{"fifth crash, but the others are long ago", fault.Worker, true, ago(11, 12, 13, 14), restart},
		{"first start fails", fault.Crash, false, nil, restart},
		{"second start fails", fault.Timeout, false, ago(1), retire},
		{"device lost", fault.Device, true, nil, retire},
		{"kernel unusable", fault.Incompatible, false, nil, giveUpJob},
		{"kernel unusable that was not", fault.Incompatible, true, nil, restart},
		{"disk full", fault.Storage, true, nil, giveUpJob},
		{"stopping", fault.Canceled, true, nil, leave},
		{"a bug", fault.Unknown, true, nil, restart},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b budget
			for i := len(test.losses) - 1; i >= 0; i-- {
				b.charge(start.Add(-test.losses[i]))
			}
			if got := decide(test.kind, test.opened, &b, start); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func ago(minutes ...int) (losses []time.Duration) {
	for _, m := range minutes {
		losses = append(losses, time.Duration(m)*time.Minute)
	}
	return losses
}

func TestBackOff(t *testing.T) {
	var b budget
	last := time.Duration(0)
	for range 40 {
		b.charge(time.Now())
		next := b.backOff()
		if next < last || next > maxBackOff {
			t.Fatalf("back-off %s after %s", next, last)
		}
		last = next
	}
	if last != maxBackOff {
		t.Errorf("ends at %s", last)
	}
}
