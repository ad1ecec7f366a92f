package minhash

// permuter applies every permutation to the hashes, of which there must be at least one,
// and lowers each permutation's value in least to the minimum. It may change the hashes.
//
// The affine loop keeps two permutations in registers while it iterates over the hashes:
// it loads each hash once for both, and stores nothing.
type permuter func(least, hashes []uint32)

func newPermuter(scheme Scheme, p Permutations) permuter {
	if scheme == Legacy {
		return p.legacy
	}
	a, b := make([]uint32, len(p.A)), make([]uint32, len(p.B))
	for i := range a {
		a[i], b[i] = uint32(p.A[i]), uint32(p.B[i])
	}
	return func(least, hashes []uint32) { affine(a, b, least, hashes) }
}

func affine(a, b, least, hashes []uint32) {
	for i, h := range hashes {
		hashes[i] = Mix(h)
	}
	a, b = a[:len(least)], b[:len(least)]
	i := 0
	for ; i+2 <= len(least); i += 2 {
		a0, b0, least0 := a[i], b[i], least[i]
		a1, b1, least1 := a[i+1], b[i+1], least[i+1]
		for _, h := range hashes {
			least0 = min(least0, a0*h+b0)
			least1 = min(least1, a1*h+b1)
		}
		least[i], least[i+1] = least0, least1
	}
	for ; i < len(least); i++ {
		for _, h := range hashes {
			least[i] = min(least[i], a[i]*h+b[i])
		}
	}
}

// legacy divides only in the few cases that need it. With y = a*h + b + 1, the low 32 bits
// of y + y>>61 are one more than the remainder, except if the remainder is very small or
// the sum overflows. In these cases, and if the kept bits are all ones, those low bits are
// below 8.
func (p Permutations) legacy(least, hashes []uint32) {
	a, b := p.A[:len(least)], p.B[:len(least)]
	for i := range least {
		multiplier, next := a[i], b[i]+1
		lowest := uint32(Largest)
		for _, h := range hashes {
			y := multiplier*uint64(h) + next
			lowest = min(lowest, uint32(y+y>>61))
		}
		if lowest < 8 {
			lowest = exactly(multiplier, b[i], hashes) + 1
			if lowest == 0 {
				continue // the minimum is Largest: nothing to lower
			}
		}
		least[i] = min(least[i], lowest-1)
	}
}

// exactly computes the minimum of one permutation by division.
func exactly(a, b uint64, hashes []uint32) uint32 {
	lowest := uint32(Largest)
	for _, h := range hashes {
		lowest = min(lowest, uint32((a*uint64(h)+b)%mersenne))
	}
	return lowest
}
