package input

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
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
			source := open(t, path, CutOptions{Chunks: 1 + r.IntN(5), Split: split}).(Planner)
			drain(t, source)
			sums := source.Sums()
			closeSource(t, source)
			chunktest.Must(t, sums.CheckAll(path))
			if !sums.Cover(sums.From, int64(len(data))) || sums.Cover(0, int64(len(data))+1) {
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

// TestSumsLog: the log returns a prefix of what was written, whatever happened to the end
// of the file, and can be continued from there.
func TestSumsLog(t *testing.T) {
	all := Sums{From: 3}
	for i := range 20 {
		all.Stretches = append(all.Stretches, chunk.FileSum{Bytes: int64(i + 1), CRC: uint32(i * 7919)})
	}
	path := filepath.Join(t.TempDir(), "input.sums")
	log, _, err := OpenSumsLog(path)
	chunktest.Must(t, err)
	for _, n := range []int{0, 3, 3, 1, 20} {
		chunktest.Must(t, log.Append(Sums{From: 3, Stretches: all.Stretches[:n]}))
	}
	chunktest.Must(t, log.Close())
	data, err := os.ReadFile(path)
	chunktest.Must(t, err)
	for size := range data {
		damaged := append([]byte(nil), data[:size]...)
		if size%2 == 0 && size > 0 {
			damaged = append([]byte(nil), data...)
			damaged[size] ^= 1
		}
		chunktest.Write(t, path, damaged)
		log, got, err := OpenSumsLog(path)
		chunktest.Must(t, err)
		read, err := ReadSumsLog(path)
		chunktest.Must(t, err)
		if diff := cmp.Diff(got, read); diff != "" {
			t.Fatal(diff)
		}
		if n := len(got.Stretches); n > 0 && !cmp.Equal(got, Sums{From: 3, Stretches: all.Stretches[:n]}) || n == 20 {
			t.Fatalf("cut or damaged at %d: %+v", size, got)
		}
		chunktest.Must(t, log.Append(all))
		chunktest.Must(t, log.Close())
		if again, _ := os.ReadFile(path); string(again) != string(data) {
			t.Fatalf("cut or damaged at %d, then appended to: %s", size, again)
		}
	}
}
