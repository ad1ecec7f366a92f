package minhash

// twister is the Mersenne Twister MT19937 as numpy.random.RandomState uses it.
type twister struct {
	state [624]uint32
	next  int
}

func newTwister(seed uint32) *twister {
	t := &twister{next: len(twister{}.state)}
	for i := range t.state {
		t.state[i] = seed
		seed = 1812433253*(seed^seed>>30) + uint32(i) + 1
	}
	return t
}

func (t *twister) refill() {
	const period, offset = len(t.state), 397
	for i := range t.state {
		y := t.state[i]&0x80000000 | t.state[(i+1)%period]&0x7fffffff
		t.state[i] = t.state[(i+offset)%period] ^ y>>1 ^ (y&1)*0x9908b0df
	}
	t.next = 0
}

func (t *twister) uint32() uint32 {
	if t.next == len(t.state) {
		t.refill()
	}
	y := t.state[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// uint64 takes the high half first.
func (t *twister) uint64() uint64 {
	high := uint64(t.uint32())
	return high<<32 | uint64(t.uint32())
}

// below returns a random number below limit, which must be at most mask + 1, in the same
// way as RandomState.randint: draw, mask, and draw again if it is too large.
func (t *twister) below(limit, mask uint64) uint64 {
	for {
		if n := t.uint64() & mask; n < limit {
			return n
		}
	}
}
