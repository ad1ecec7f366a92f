package plugins

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func checkRaw[T rawNumber](t *testing.T, values ...T) {
	t.Helper()
	want, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	for _, native := range []bool{asInMemory, false} {
		was := asInMemory
		asInMemory = native
		got := bytes.Clone(rawBytes(values))
		back := fromRaw[T](got)
		asInMemory = was
		if !bytes.Equal(got, want) || !slices.Equal(back, values) {
			t.Errorf("as in memory %v: %v became %x, then %v", native, values, got, back)
		}
	}
}

func TestRawNumbers(t *testing.T) {
	checkRaw[float32](t)
	checkRaw[float32](t, 0, 1, -1.5, math.MaxFloat32, float32(math.Inf(-1)))
	checkRaw(t, 0, 1, -1.5, math.MaxFloat64, math.Inf(1))
	checkRaw[int64](t, 0, 1, -1, math.MinInt64, math.MaxInt64)
	checkRaw(t, true, false)
}

func TestForeignBools(t *testing.T) {
	if got := fromRaw[bool]([]byte{1, 0, 255}); !slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("got %v", got)
	}
}
