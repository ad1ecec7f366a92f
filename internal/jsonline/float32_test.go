package jsonline

import (
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// like returns what AppendFloat32 must write, according to strconv.
func like(dst []byte, f float32) []byte {
	abs := float32(math.Abs(float64(f)))
	dst, _ = appendFloat(dst, float64(f), 32, abs != 0 && (abs < 1e-6 || abs >= 1e21))
	return dst
}

func TestPowers32(t *testing.T) {
	for i, power := range powers32 {
		k := int64(i - 31)
		exact := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(k, -k)), nil))
		if k < 0 {
			exact.Inv(exact)
		}
		// Scaled to 64 bits, rounded up.
		two := big.NewRat(2, 1)
		half := big.NewRat(1, 2)
		limit := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 64))
		floor := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 63))
		for exact.Cmp(limit) >= 0 {
			exact.Mul(exact, half)
		}
		for exact.Cmp(floor) < 0 {
			exact.Mul(exact, two)
		}
		up := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
		up.Quo(up, exact.Denom())
		if !up.IsUint64() || up.Uint64() != power {
			t.Errorf("1e%d: %#x instead of %v", k, power, up)
		}
	}
}

// Every exponent with the mantissas that cause carries and ties, and both signs.
func TestFloat32Borders(t *testing.T) {
	mantissas := []uint32{0, 1, 2, 3, 1<<22 - 1, 1 << 22, 1<<22 + 1, 1<<23 - 2, 1<<23 - 1}
	for exponent := range uint32(256) {
		for _, mantissa := range mantissas {
			for _, sign := range []uint32{0, 1 << 31} {
				check32(t, sign|exponent<<23|mantissa)
			}
		}
	}
	for power := -45; power <= 38; power++ {
		f, _ := strconv.ParseFloat("1e"+strconv.Itoa(power), 32)
		b := math.Float32bits(float32(f))
		for d := range uint32(20) {
			check32(t, b+d)
			check32(t, b-d)
		}
	}
}

// With GPURUN_ALL_FLOATS=1, all of them, which takes several minutes; else a few million.
func TestFloat32LikeStrconv(t *testing.T) {
	if os.Getenv("GPURUN_ALL_FLOATS") == "" {
		random := rand.New(rand.NewPCG(1, 2))
		for range 1_000_000 {
			check32(t, random.Uint32())
			check32(t, math.Float32bits(float32(random.NormFloat64())))
		}
		return
	}
	var group sync.WaitGroup
	share := uint64(1) << 32 / uint64(runtime.NumCPU())
	for from := uint64(0); from < 1<<32; from += share {
		group.Go(func() {
			var got, want []byte
			for b := from; b < min(from+share, 1<<32); b++ {
				f := math.Float32frombits(uint32(b))
				got, _ = AppendFloat32(got[:0], f)
				if want = like(want[:0], f); string(got) != string(want) {
					t.Errorf("%#x: %s instead of %s", b, got, want)
					return
				}
			}
		})
	}
	group.Wait()
}

func check32(t *testing.T, b uint32) {
	t.Helper()
	f := math.Float32frombits(b)
	got, ok := AppendFloat32(nil, f)
	if want := like(nil, f); string(got) != string(want) {
		t.Fatalf("%#x: %s instead of %s", b, got, want)
	}
	if finite := !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0); ok != finite {
		t.Fatalf("%s: %v", got, ok)
	}
}

// Values as in an embedding: around 0, with full precision.
func embedding() []float32 {
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, 384)
	for i := range values {
		values[i] = float32(random.NormFloat64() * 0.05)
	}
	return values
}

func BenchmarkFloat32(b *testing.B) {
	values := embedding()
	for _, way := range []struct {
		name   string
		append func([]byte, float32) []byte
	}{
		{"schubfach", func(dst []byte, f float32) []byte { dst, _ = AppendFloat32(dst, f); return dst }},
		{"strconv", like},
	} {
		b.Run(way.name, func(b *testing.B) {
			var dst []byte
			for b.Loop() {
				dst = dst[:0]
				for _, f := range values {
					dst = append(way.append(dst, f), ',')
				}
			}
			b.ReportMetric(float64(len(values))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}
