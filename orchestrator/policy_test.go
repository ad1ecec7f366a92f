package orchestrator

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestTextOfALostDeviceIsAHint: text that only looks like a lost device costs the
// device if the driver confirms it, and is the records' fault once nothing else
// explains it.
func TestTextOfALostDeviceIsAHint(t *testing.T) {
	for name, test := range map[string]struct {
		doubted doubted
		want    suspicion
	}{
		"first":                             {doubted{devices: 1}, tryElsewhere},
		"first, on the only device":         {doubted{devices: 1, last: true}, tryElsewhere},
		"again on the only device":          {doubted{devices: 1, again: true, last: true}, recordsFault},
		"again, while another is to try":    {doubted{devices: 1, again: true}, tryElsewhere},
		"on a second device":                {doubted{devices: 2}, recordsFault},
		"confirmed by the driver":           {doubted{devices: 1, confirmed: true}, deviceLost},
		"confirmed, on a second device":     {doubted{devices: 2, confirmed: true}, deviceLost},
		"confirmed, again, the only device": {doubted{devices: 1, confirmed: true, again: true, last: true}, deviceLost},
	} {
		if got := test.doubted.decide(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

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
