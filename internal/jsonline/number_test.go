package jsonline

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestAppendInt(t *testing.T) {
	numbers := []int64{0, math.MaxInt64, math.MinInt64, math.MaxUint32, math.MaxUint32 + 1, -1}
	for ten := int64(1); ten < math.MaxInt64/10; ten *= 10 {
		numbers = append(numbers, ten, ten-1, ten+1, -ten)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		numbers = append(numbers, int64(random.Uint64())>>random.UintN(64))
	}
	for _, n := range numbers {
		if got, want := string(AppendInt([]byte("x"), n)), "x"+strconv.FormatInt(n, 10); got != want {
			t.Fatalf("%s instead of %s", got, want)
		}
	}
}

func BenchmarkAppendInt(b *testing.B) {
	for _, way := range []struct {
		name   string
		append func([]byte, int64) []byte
	}{
		{"jsonline", AppendInt},
		{"strconv", func(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			var dst []byte
			n := int64(0)
			for b.Loop() {
				n = (n*2862933555777941757 + 3037000493) & math.MaxUint32
				dst = way.append(dst[:0], n)
			}
		})
	}
}

// TestAppendFloat32s: an array contains its numbers as formatted one by one.
func TestAppendFloat32s(t *testing.T) {
	odd := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, 1e-6, 9.9e-7, -1e-45, 1e21, 9.999999e20, math.MaxFloat32,
		float32(math.NaN()), float32(math.Inf(-1)), 0.1, 16777216, -123456.7}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		values := make([]float32, n)
		for i := range values {
			if values[i] = math.Float32frombits(random.Uint32()); random.IntN(2) == 0 {
				values[i] = odd[random.IntN(len(odd))]
			}
		}
		want := []byte("x[")
		for i, f := range values {
			if i > 0 {
				want = append(want, ',')
			}
			want, _ = AppendFloat32(want, f)
		}
		want = append(want, ']')
		if got := AppendFloat32s([]byte("x"), values); !bytes.Equal(got, want) {
			t.Fatalf("%v\n got %s\nwant %s", values, got, want)
		}
	}
}

// TestHalves: every 16-bit number, and the numbers next to it, in an array and alone.
func TestHalves(t *testing.T) {
	for b := range uint32(1 << 19) {
		for _, bits := range []uint32{b << 13, b<<13 + 1, b<<13 - 1} {
			f := math.Float32frombits(bits)
			got := AppendFloat32s(nil, []float32{f, 1})
			want, _ := AppendFloat32([]byte("["), f)
			if want = append(want, ",1.0]"...); !bytes.Equal(got, want) {
				t.Fatalf("%#x: got %s, want %s", bits, got, want)
			}
		}
	}
}
