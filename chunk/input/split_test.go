package input

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// halve splits a chunk in two at a batch border.
func halve(c chunk.Chunk, batch int) (first, second chunk.Chunk, err error) {
	return SplitAt(c, chunk.Size(c.Records, 2, batch))
}

// checkHalves checks that the halves make up the chunk, that the first consists of whole
// batches, and that they are as even as batches allow.
func checkHalves(t *testing.T, c chunk.Chunk, batch int) {
	t.Helper()
	first, second, err := halve(c, batch)
	chunktest.Must(t, err)
	whole, err := readChunk(c, plain)
	chunktest.Must(t, err)
	if second.Records == 0 {
		if diff := cmp.Diff(c, first); diff != "" || !reflect.DeepEqual(second, chunk.Chunk{}) {
			t.Errorf("not halved, but %+v and %+v: %s", first, second, diff)
		}
		if c.Records > int64(max(batch, 1)) {
			t.Errorf("%d records in batches of %d are not halved", c.Records, batch)
		}
		return
	}
	if first.Records%int64(max(batch, 1)) != 0 || first.Records != chunk.Size(c.Records, 2, batch) {
		t.Errorf("%d of %d records in the first half, in batches of %d", first.Records, c.Records, batch)
	}
	if first.Records+second.Records != c.Records || first.Length+second.Length != c.Length || second.Offset != first.Offset+first.Length {
		t.Errorf("%+v and %+v are not %+v", first, second, c)
	}
	// Indexes, lines and offsets are compared too, and the reader checks the counts.
	if diff := cmp.Diff(whole, readAll(t, []chunk.Chunk{first, second}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%+v: %s", c, diff)
	}
}

func TestSplitAt(t *testing.T) {
	r := chunktest.Seeded(t)
	all := append([]string{}, chunktest.Nasty...)
	all = append(all, "a\r\n\r\n \r\n\nb\r\n\r\n", "\n\n a\n\n\nb\n\n\nc\n\n", strings.Repeat("x\n", 9), strings.Repeat("x\r\n\r\n", 9)+"x")
	for range 80 {
		all = append(all, string(chunktest.Input(r, 30)))
	}
	for _, data := range all {
		shrink(t, 64, 1+r.IntN(20), 1+r.IntN(20))
		source := open(t, chunktest.Temporary(t, []byte(data)), cutOptions{Chunks: 1 + r.IntN(3)})
		for _, c := range drain(t, source) {
			for _, batch := range []int{0, 1, 2, 3, 7, 1000} {
				checkHalves(t, c, batch)
			}
		}
		closeSource(t, source)
	}
}

// TestSplitAtAgain halves down to single records.
func TestSplitAtAgain(t *testing.T) {
	data := chunktest.Input(chunktest.Seeded(t), 200)
	source := open(t, chunktest.Temporary(t, data), cutOptions{})
	defer closeSource(t, source)
	var singles func(c chunk.Chunk) []chunk.Chunk
	singles = func(c chunk.Chunk) []chunk.Chunk {
		first, second, err := halve(c, 1)
		chunktest.Must(t, err)
		if second.Records == 0 {
			return []chunk.Chunk{first}
		}
		return append(singles(first), singles(second)...)
	}
	var single []chunk.Chunk
	for _, c := range drain(t, source) {
		single = append(single, singles(c)...)
	}
	want, _ := chunktest.Records(data)
	if diff := cmp.Diff(want, readAll(t, single), cmpopts.EquateEmpty()); diff != "" || len(single) != len(want) {
		t.Errorf("%d chunks of %d records: %s", len(single), len(want), diff)
	}
}

// TestSplitAtFails: a file that has changed is an error.
func TestSplitAtFails(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"shorter": func(path string) error { return os.Truncate(path, 20) },
		"blank":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("\n", 1000)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := chunktest.Temporary(t, chunktest.Numbered(50))
			source := open(t, path, cutOptions{})
			defer closeSource(t, source)
			c := drain(t, source)[0]
			chunktest.Must(t, damage(path))
			first, second, err := halve(c, 1)
			chunktest.WantKind(t, err, fault.Storage)
			if !reflect.DeepEqual(first, c) || !reflect.DeepEqual(second, chunk.Chunk{}) {
				t.Errorf("%+v and %+v", first, second)
			}
		})
	}
}
