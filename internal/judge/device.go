package judge

// Outcomes counts what the kernel has made of the records that it got on one device, without
// failures that are proven to be the records' fault.
type Outcomes struct{ Good, Failed int64 }

const (
	// standsOut is how many times as often as on another device records must fail before the
	// device, and not the records, may be the cause.
	standsOut = 3
	// enoughRecords that succeeded on another device are enough to see that a device does not
	// stand out. Until then, few failures may be the first of many.
	enoughRecords = 400
	// sickRecords must have failed before a device is retired. A kernel that fails now and then
	// anywhere would otherwise cost a job all its devices.
	sickRecords = 8
)

// Plus returns the sum.
func (o Outcomes) Plus(other Outcomes) Outcomes {
	return Outcomes{o.Good + other.Good, o.Failed + other.Failed}
}

func (o Outcomes) records() int64 { return o.Good + o.Failed }

// StandsOut reports whether records fail on the device much more often than on one of the
// others. The best of those counts: several devices may be sick, and they fail fastest.
//
// One record is added to those of the other device, a failed one: what it has not computed
// proves nothing.
func (o Outcomes) StandsOut(others []Outcomes) bool {
	for _, x := range others {
		if o.Failed > 0 && o.Failed*(x.records()+1) >= standsOut*(x.Failed+1)*o.records() {
			return true
		}
	}
	return false
}

// Suspicious reports whether another device must compute a record that failed on this one,
// before its failures are marked: it stands out, or too few records have succeeded on the
// others to tell. Those that failed there tell nothing, since several devices may be sick.
func (o Outcomes) Suspicious(others []Outcomes) bool {
	if o.Failed == 0 || len(others) == 0 {
		return false
	}
	known := false
	for _, x := range others {
		known = known || x.Good >= enoughRecords || o.Failed*(x.Good+1) >= standsOut*o.records()
	}
	return !known || o.StandsOut(others)
}

// Sick reports whether a device, on which a record failed that succeeds on another one, is to
// be retired.
func (o Outcomes) Sick(others []Outcomes) bool {
	return o.Failed >= sickRecords && o.StandsOut(others)
}

// Trusted reports whether a record that fails on the device too is to blame for that.
func (o Outcomes) Trusted(others []Outcomes) bool {
	return o.Good > 0 && !o.StandsOut(others)
}
