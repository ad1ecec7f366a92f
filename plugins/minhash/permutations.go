package minhash

// Scheme is a way to permute hashes.
type Scheme string

const (
	// Affine32 is datasketch's default since 2.0: the hash is mixed once, then
	// each permutation is a*h + b modulo 2^32.
	Affine32 Scheme = "affine32"
	// Legacy is datasketch's only way before 2.0, and its scheme="legacy" since:
	// a*h + b modulo 2^64, modulo 2^61 - 1, of which 32 bits are kept.
	Legacy Scheme = "legacy"
)

// mersenne is the prime that Legacy divides by.
const mersenne = 1<<61 - 1

// Largest is the value of a signature without any shingle.
const Largest = 1<<32 - 1

// Permutations is the numbers that hashes are permuted with; of Affine32 both are
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

// Mix is what Affine32 does to a hash before the permutations: the last steps of
// MurmurHash3.
func Mix(h uint32) uint32 {
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
