package input

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/chunktest"
)

// TestInputSums: any changed byte is detected, an appended one is ignored, and the sums
// survive job.json; for a file that was counted first and for one that was split while it
// was read.
func TestInputSums(t *testing.T) {
	r := chunktest.Seeded(t)
	for range 40 {
		shrink(t, 1+r.Int64N(40), 1+r.IntN(20), 1)
		data := append(chunktest.Input(r, 40), "end"...)
		path := chunktest.Temporary(t, data)
		for _, split := range []Split{SplitRecords, SplitBytes} {
			source := open(t, path, cutOptions{Chunks: 1 + r.IntN(5), Split: split})
			drain(t, source)
			sums, whole := source.SumsOf(0)
			closeSource(t, source)
			chunktest.Must(t, sums.CheckAll(path))
			if !whole || sums.end() != int64(len(data)) {
				t.Fatalf("sums of %d bytes: %+v", len(data), sums)
			}
			at := int(sums.From) + r.IntN(len(data)-int(sums.From))
			changed := append([]byte(nil), data...)
			changed[at] ^= 1 << r.IntN(8)
			chunktest.Write(t, path, append(changed, "more"...))
			if err := sums.CheckAll(path); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("byte %d of %d changed: %v", at, len(data), err)
			}
			if err := sums.Check(path, int64(at), int64(at)+1); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("byte %d changed, and looked at: %v", at, err)
			}
			chunktest.Write(t, path, append(append([]byte(nil), data...), "more"...))
			chunktest.Must(t, sums.CheckAll(path))
			chunktest.Must(t, os.Truncate(path, int64(len(data))-1))
			if err := sums.CheckAll(path); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("cut: %v", err)
			}
			chunktest.Write(t, path, data)
			if split == SplitBytes {
				continue // its chunks differ in size, and job.json does not hold their sums
			}
			encoded, err := json.Marshal(sums)
			chunktest.Must(t, err)
			var again Sums
			chunktest.Must(t, json.Unmarshal(encoded, &again))
			if diff := cmp.Diff(sums, again); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// TestInputSumsAreBounded: the number of sums does not grow with the file.
func TestInputSumsAreBounded(t *testing.T) {
	for _, n := range []int{0, 1, fileStretches, fileStretches + 1, 16 << 10, 1 << 20} {
		blocks := make([]scanned, n)
		for i := range blocks {
			blocks[i].sum.Bytes = 1
		}
		s := sumsOf(0, blocks, fileStretches)
		if len(s.Stretches) > fileStretches || s.end() != int64(n) {
			t.Errorf("%d blocks: %d stretches of %d bytes", n, len(s.Stretches), s.end())
		}
	}
}
