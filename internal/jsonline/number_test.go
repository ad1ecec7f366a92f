package jsonline

import (
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
