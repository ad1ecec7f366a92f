package worker

import "testing"

// TestBlamed: a failure that reads like a lost device is blamed on the record if a good
// record is computed, on the device if that fails too, and left to the orchestrator
// otherwise.
func TestBlamed(t *testing.T) {
	for _, test := range []struct {
		control control
		asked   bool
		want    culprit
	}{
		{controlComputes, false, theRecord},
		{controlComputes, true, theRecord},
		{controlFails, false, theDevice},
		{controlFails, true, theDevice},
		{controlUnknown, false, undecided},
		{controlUnknown, true, theRecord},
	} {
		if got := blamed(test.control, test.asked); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
