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
		got := make([]byte, len(want))
		Put(got, values)
		back := Get[T](got)
		asInMemory = was
		if !bytes.Equal(got, want) || !slices.Equal(back, values) {
			t.Errorf("as in memory %v: %v became %x, then %v", native, values, got, back)
		}
	}
}

func TestPutAndGet(t *testing.T) {
	check[float32](t)
	check[float32](t, 0, 1, -1.5, math.MaxFloat32, float32(math.Inf(-1)))
	check(t, 0, 1, -1.5, math.MaxFloat64, math.Inf(1))
	check[int64](t, 0, 1, -1, math.MinInt64, math.MaxInt64)
}

func TestBools(t *testing.T) {
	data := []byte{9, 9, 9}
	PutBools(data, []bool{true, false, true})
	if !bytes.Equal(data, []byte{1, 0, 1}) || !slices.Equal(GetBools([]byte{1, 0, 255}), []bool{true, false, true}) {
		t.Errorf("got %v, %v", data, GetBools([]byte{1, 0, 255}))
	}
}
