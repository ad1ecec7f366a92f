package chunk

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInputSums: any changed byte is found, an appended one is not one, and what
// job.json keeps says the same; of a file that was counted first, and of one that was
// cut while it was read.
func TestInputSums(t *testing.T) {
	r := seeded(t)
	for range 40 {
		shrink(t, 1+r.Int64N(40), 1+r.IntN(20), 1)
		data := append(input(r, 40), "end"...)
		path := temporary(t, data)
		for _, split := range []Split{SplitRecords, SplitBytes} {
			source := open(t, path, CutOptions{Chunks: 1 + r.IntN(5), Split: split}).(Planner)
			drain(t, source)
			sums := source.Sums()
			closeSource(t, source)
			must(t, sums.CheckAll(path))
			if !sums.Cover(sums.From, int64(len(data))) || sums.Cover(0, int64(len(data))+1) {
				t.Fatalf("sums of %d bytes: %+v", len(data), sums)
			}
			at := int(sums.From) + r.IntN(len(data)-int(sums.From))
			changed := append([]byte(nil), data...)
			changed[at] ^= 1 << r.IntN(8)
			write(t, path, append(changed, "more"...))
			if err := sums.CheckAll(path); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("byte %d of %d changed: %v", at, len(data), err)
			}
			if err := sums.Check(path, int64(at), int64(at)+1); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("byte %d changed, and looked at: %v", at, err)
			}
			write(t, path, append(append([]byte(nil), data...), "more"...))
			must(t, sums.CheckAll(path))
			must(t, os.Truncate(path, int64(len(data))-1))
			if err := sums.CheckAll(path); !errors.Is(err, ErrOtherBytes) {
				t.Errorf("cut: %v", err)
			}
			write(t, path, data)
			if split == SplitBytes {
				continue // its chunks are not all of one size, and job.json has no sums of them
			}
			encoded, err := json.Marshal(sums)
			must(t, err)
			var again InputSums
			must(t, json.Unmarshal(encoded, &again))
			if diff := cmp.Diff(sums, again); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// TestInputSumsAreBounded: their number does not grow with the file.
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
