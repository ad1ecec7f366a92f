package rawnum

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func check[T Number](t *testing.T, values ...T) {
	t.Helper()
	want, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	for _, native := range []bool{asInMemory, false} {
		was := asInMemory
		asInMemory = native
		got := bytes.Clone(Bytes(values))
		back := Get[T](got)
		asInMemory = was
		if !bytes.Equal(got, want) || !slices.Equal(back, values) {
			t.Errorf("as in memory %v: %v became %x, then %v", native, values, got, back)
		}
	}
}

func TestBytesAndGet(t *testing.T) {
	check[float32](t)
	check[float32](t, 0, 1, -1.5, math.MaxFloat32, float32(math.Inf(-1)))
	check(t, 0, 1, -1.5, math.MaxFloat64, math.Inf(1))
	check[int64](t, 0, 1, -1, math.MinInt64, math.MaxInt64)
	check(t, true, false)
}

func TestForeignBools(t *testing.T) {
	if got := Get[bool]([]byte{1, 0, 255}); !slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("got %v", got)
	}
}
