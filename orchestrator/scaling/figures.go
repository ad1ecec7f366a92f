// Package scaling decides how many workers a device gets. The decision is a pure value:
// figures go in, a number of workers and a reason come out. It reads no clock and starts
// nothing, so that tables and a simulated machine can test it.
//
// A search starts with few workers and doubles them, or more where GPU and cores are mostly
// idle, while that raises the device's rate by at least 10% for each doubling and what it saves
// in the remaining time exceeds what loading costs. Rates are measured for as long as their
// noise demands. A step that brings less is followed by one try of the midpoint,
// and the search settles on the fewest workers that are nearly as fast as the best. It
// searches again only when the batches change character, the device's other users change,
// or, a few times, when cores are idle that other processes used. Workers that share a CPU
// start at the upper bound and are halved instead while they compete for cores and fewer are
// not slower. A first worker that leaves the GPU idle is reason enough to add workers that are
// cheap to open, before its rate is known.
package scaling

import "time"

// Figures are what is known about a device at one moment.
type Figures struct {
	// Time is the time since the job began.
	Time time.Duration
	// Workers have computed something; Loading have not yet. Limit is the upper bound.
	Workers, Loading, Limit int
	// Cold is how long the first worker has been computing its first batch; 0 if it does not.
	Cold time.Duration
	// Records, Bytes and Batches are finished by the device's workers since the job
	// began.
	Records, Bytes, Batches int64
	// Busy is how long the workers' kernels have had a batch, all together.
	Busy time.Duration
	// GPUBusy is the share of the last second in which the GPU computed; negative if it is
	// unknown for these workers.
	GPUBusy float64
	// Cores is how many cores this job may use, IdleCores how many of them no process used in
	// the last interval; negative if unknown. Runnable is the number of this job's
	// threads that ran or wanted to.
	Cores, IdleCores, Runnable float64
	// HostFree is the memory available on the host and HostEach what a worker with its
	// kernel uses. DeviceFree is the device memory that is free or leased and unused,
	// DeviceEach what a worker uses of it. 0 if unknown.
	HostFree, HostEach     uint64
	DeviceFree, DeviceEach uint64
	// Others is the device memory that other jobs use.
	Others uint64
	// Load is how long one more kernel takes to open, Remaining the time that the rest of the
	// job takes at its current rate; negative if unknown.
	Load, Remaining time.Duration
	// OOMs counts the batches and kernels of this device that did not fit in its memory.
	OOMs int
	// Refused counts the kernels that could not be opened next to others for another
	// reason.
	Refused int
	// Unsteady means that rates mean nothing now: the job is paused, the device slowed
	// down, or the batch size is being searched for.
	Unsteady bool

	fed      float64 // the share of a window in which the kernels had a batch
	expected float64 // the exponent by which the rate is expected to grow with the workers
	outgrown bool    // the rate has grown faster than the share in which the GPU computed
}

// Decision is what to do with a device.
type Decision struct {
	// Workers is how many workers it should have.
	Workers int
	// Reason is why, for people; empty if nothing has changed.
	Reason string
	// Settled means that the search is over.
	Settled bool
}

const (
	// keepGain is the gain of a doubling that is kept; other steps must bring as much for each
	// doubling.
	keepGain = 0.10
	// nearly is how much slower fewer workers may be than the best count seen.
	nearly = 0.03
	// nearlyDown is the same where workers are removed, not added, to find out.
	nearlyDown = 0.02
	// certainty is how many standard errors a gain must be away from the one that counts.
	certainty = 2.5
	// busyGPU, busyHost and unfed are the shares at which another worker cannot bring
	// keepGain: the GPU computes, the cores are busy, the kernels wait for input. Cores
	// may be busy with little use, with threads that wait for each other, so that only a
	// host without idle cores counts.
	busyGPU  = 1 / (1 + keepGain)
	busyHost = 0.97
	unfed    = 0.70
	// mostFactor is by how much the workers grow at most in one step, blindFactor while it is unknown how
	// busy the GPU is.
	mostFactor  = 16.0
	blindFactor = 4.0
	// Workers are added without a measured rate if one takes at most earlyLoad to open and the GPU was busy
	// for at most earlyBusy of the first one's time.
	earlyLoad = 3 * time.Second
	earlyBusy = 0.5
	// steep is the exponent from which the rate has grown with the workers so much that fewer of them are
	// certainly slower.
	steep = 0.65
	// Margin is the factor by which a worker may exceed the memory that others use.
	Margin = 1.15
	// leastFree is the host memory below which a worker is removed.
	leastFree = 256 << 20
	// A step must save payOff times what it costs. Before the first step, the rate is expected to
	// grow with the workers to the power of firstExpected. A search for the best number among
	// those that were tried is expected to save middleGain.
	payOff        = 2
	measuring     = 1500 * time.Millisecond // how long the rate of a step is measured
	firstExpected = 0.5
	middleGain    = 0.05
	// crowd is the number of runnable threads per core above which workers compete.
	crowd = 1.6
	// changed is the factor by which the size of records or the rate must change, in
	// two windows, for a new search; restTime is the least time between two searches.
	changed  = 1.6
	restTime = time.Minute
	// otherShare is how much of a device's memory other jobs must take or free for a
	// new search.
	otherShare = 0.10
	// mostLooks is how many new searches a job makes because cores became idle, which needs
	// otherShare of them, and at least leastFreed cores.
	mostLooks  = 3
	leastFreed = 0.5
)
