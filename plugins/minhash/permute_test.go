package minhash

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// Values near the limits of the shortcut equal those of the division.
func TestLegacyNearTheBorders(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		h := random.Uint32() | 1
		// Choose b so that a*h + b is at such a limit.
		a := 1 + random.Uint64N(mersenne-1)
		for _, border := range []uint64{0, 1 << 61, 2 << 61, 7 << 61, 1<<61 - 1, 2*mersenne + 1, 7 * mersenne} {
			for offset := -10; offset <= 10; offset++ {
				target := border + uint64(offset)
				b := target - a*uint64(h) // modulo 2^64
				p := Permutations{A: []uint64{a}, B: []uint64{b}}
				least := []uint32{Largest}
				p.legacy(least, []uint32{h})
				want := uint32(new(big.Int).Mod(new(big.Int).SetUint64(target), big.NewInt(mersenne)).Uint64())
				if least[0] != want {
					t.Fatalf("a %d, b %d, h %d: got %d, want %d", a, b, h, least[0], want)
				}
			}
		}
	}
}

// The loop over pairs of permutations gives the same results as one at a time.
func TestPermuters(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, scheme := range []Scheme{Affine32, Legacy} {
		for n := 1; n <= 9; n++ {
			p := NewPermutations(scheme, n, uint32(n))
			hashes := make([]uint32, 1+random.IntN(100))
			for i := range hashes {
				hashes[i] = random.Uint32()
			}
			want := make([]uint32, n)
			for i := range want {
				want[i] = Largest
				for _, h := range hashes {
					value := uint32((p.A[i]*uint64(h) + p.B[i]) % mersenne)
					if scheme == Affine32 {
						value = uint32(p.A[i])*Mix(h) + uint32(p.B[i])
					}
					want[i] = min(want[i], value)
				}
			}
			got := make([]uint32, n)
			for i := range got {
				got[i] = Largest
			}
			newPermuter(scheme, p)(got, hashes)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s, %d permutations: number %d is %d, want %d", scheme, n, i, got[i], want[i])
				}
			}
		}
	}
}
