package judge

import (
	"slices"
	"testing"
)

// A device is suspicious if records fail on it much more often than elsewhere, or if too little is
// known about the others. It is sick only if many records fail.
func TestOutcomes(t *testing.T) {
	none, well, few := Outcomes{}, Outcomes{Good: 1000}, Outcomes{Good: 10}
	for name, test := range map[string]struct {
		device           Outcomes
		others           []Outcomes
		suspicious, sick bool
	}{
		"no failures":                          {Outcomes{Good: 100}, []Outcomes{well}, false, false},
		"the only device":                      {Outcomes{Failed: 100}, nil, false, false},
		"fails everything":                     {Outcomes{Failed: 100}, []Outcomes{well, well}, true, true},
		"fails everything, little is known":    {Outcomes{Failed: 100}, []Outcomes{few, none}, true, true},
		"fails everything, nothing is known":   {Outcomes{Failed: 100}, []Outcomes{none, none}, true, false},
		"fails its first record":               {Outcomes{Failed: 1}, []Outcomes{none}, true, false},
		"fails a tenth":                        {Outcomes{Good: 900, Failed: 100}, []Outcomes{well}, true, true},
		"fails a tenth, little is known":       {Outcomes{Good: 90, Failed: 10}, []Outcomes{few}, true, false},
		"fails one":                            {Outcomes{Good: 999, Failed: 1}, []Outcomes{well}, false, false},
		"fails one of few":                     {Outcomes{Good: 99, Failed: 1}, []Outcomes{well}, true, false},
		"turned sick":                          {Outcomes{Good: 1000, Failed: 8}, []Outcomes{well}, true, true},
		"as bad as the other":                  {Outcomes{Good: 950, Failed: 50}, []Outcomes{{Good: 960, Failed: 40}}, false, false},
		"as bad as the other, early":           {Outcomes{Good: 95, Failed: 5}, []Outcomes{{Good: 90, Failed: 4}}, false, false},
		"twice as bad":                         {Outcomes{Good: 900, Failed: 100}, []Outcomes{{Good: 950, Failed: 50}}, false, false},
		"two are sick":                         {Outcomes{Failed: 4000}, []Outcomes{{Failed: 4000}, few}, true, true},
		"all fail everything":                  {Outcomes{Failed: 1000}, []Outcomes{{Failed: 1000}}, true, false},
		"all fail everything, the first knows": {Outcomes{Failed: 1000}, []Outcomes{none}, true, false},
	} {
		if got := test.device.Suspicious(test.others); got != test.suspicious {
			t.Errorf("%s: suspicious is %t", name, got)
		}
		if got := test.device.Sick(test.others); got != test.sick {
			t.Errorf("%s: sick is %t", name, got)
		}
	}
}

// Evenly bad records retire no device, and make few suspicious, however unevenly the devices
// compute.
func TestEvenlyBadRecordsRetireNoDevice(t *testing.T) {
	devices := make([]Outcomes, 4)
	suspicions, seed := 0, uint32(1)
	random := func(n int) int { // a fixed sequence
		seed = seed*1664525 + 1013904223
		return int(seed>>8) % n
	}
	for range 100000 {
		d := random(1 + random(4))
		if random(20) == 0 {
			devices[d].Failed++
			others := slices.Delete(slices.Clone(devices), d, d+1)
			if devices[d].Sick(others) {
				t.Fatalf("device %d is sick: %+v", d, devices)
			}
			if devices[d].Suspicious(others) {
				suspicions++
			}
			continue
		}
		devices[d].Good++
	}
	if suspicions > 50 {
		t.Errorf("%d of 5,000 failures are suspicious: %+v", suspicions, devices)
	}
}
