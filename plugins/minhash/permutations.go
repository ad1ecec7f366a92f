package minhash

// Scheme is a way to permute hashes.
type Scheme string

const (
	// Affine32 is datasketch's default since 2.0: mix the hash once, then compute
	// a*h + b modulo 2^32 for each permutation.
	Affine32 Scheme = "affine32"
	// Legacy is datasketch's only scheme before 2.0, and its scheme="legacy" since:
	// the low 32 bits of a*h + b modulo 2^64, modulo 2^61 - 1.
	Legacy Scheme = "legacy"
)

// mersenne is the modulus of Legacy, a prime.
const mersenne = 1<<61 - 1

// Largest is every value in the signature of an empty text.
const Largest = 1<<32 - 1

// Permutations holds the coefficients a and b of the permutations. For Affine32 they are
// below 2^32.
type Permutations struct {
	A, B []uint64
}

// NewPermutations draws n permutations as datasketch does with numpy's
// RandomState(seed).
func NewPermutations(scheme Scheme, n int, seed uint32) Permutations {
	p := Permutations{A: make([]uint64, n), B: make([]uint64, n)}
	random := newTwister(seed)
	if scheme == Legacy {
		for i := range n {
			p.A[i] = 1 + random.below(mersenne-1, mersenne)
			p.B[i] = random.below(mersenne, mersenne)
		}
		return p
	}
	for i := range n {
		p.A[i] = uint64(random.uint32()&0x7fffffff)*2 + 1
	}
	for i := range n {
		p.B[i] = uint64(random.uint32())
	}
	return p
}

// Mix is the mixing step of Affine32: the finalizer of MurmurHash3.
func Mix(h uint32) uint32 {
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
