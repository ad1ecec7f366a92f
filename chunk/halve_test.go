package chunk

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/internal/fault"
)

// checkHalves checks that the halves make up the chunk, that the first consists of whole
// batches, and that they are as even as batches allow.
func checkHalves(t *testing.T, c Chunk, batch int) {
	t.Helper()
	first, second, err := Halve(c, batch)
	must(t, err)
	whole, err := readChunk(c, plain)
	must(t, err)
	if second.Records == 0 {
		if diff := cmp.Diff(c, first); diff != "" || second != (Chunk{}) {
			t.Errorf("not halved, but %+v and %+v: %s", first, second, diff)
		}
		if c.Records > int64(max(batch, 1)) {
			t.Errorf("%d records in batches of %d are not halved", c.Records, batch)
		}
		return
	}
	if first.Records%int64(max(batch, 1)) != 0 || first.Records != Size(c.Records, 2, batch) {
		t.Errorf("%d of %d records in the first half, in batches of %d", first.Records, c.Records, batch)
	}
	if first.Records+second.Records != c.Records || first.Length+second.Length != c.Length || second.Offset != first.Offset+first.Length {
		t.Errorf("%+v and %+v are not %+v", first, second, c)
	}
	// Indexes, lines and offsets are compared too, and the reader checks the counts.
	if diff := cmp.Diff(whole, readAll(t, []Chunk{first, second}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%+v: %s", c, diff)
	}
}

func TestHalve(t *testing.T) {
	r := seeded(t)
	all := append([]string{}, nasty...)
	all = append(all, "a\r\n\r\n \r\n\nb\r\n\r\n", "\n\n a\n\n\nb\n\n\nc\n\n", strings.Repeat("x\n", 9), strings.Repeat("x\r\n\r\n", 9)+"x")
	for range 80 {
		all = append(all, string(input(r, 30)))
	}
	for _, data := range all {
		shrink(t, 64, 1+r.IntN(20), 1+r.IntN(20))
		source := open(t, temporary(t, []byte(data)), CutOptions{Chunks: 1 + r.IntN(3)})
		for _, c := range drain(t, source) {
			for _, batch := range []int{0, 1, 2, 3, 7, 1000} {
				checkHalves(t, c, batch)
			}
		}
		closeSource(t, source)
	}
}

// TestHalveAgain halves down to single records.
func TestHalveAgain(t *testing.T) {
	data := input(seeded(t), 200)
	source := open(t, temporary(t, data), CutOptions{})
	defer closeSource(t, source)
	var halve func(c Chunk) []Chunk
	halve = func(c Chunk) []Chunk {
		first, second, err := Halve(c, 1)
		must(t, err)
		if second.Records == 0 {
			return []Chunk{first}
		}
		return append(halve(first), halve(second)...)
	}
	var single []Chunk
	for _, c := range drain(t, source) {
		single = append(single, halve(c)...)
	}
	want, _ := records(data)
	if diff := cmp.Diff(want, readAll(t, single), cmpopts.EquateEmpty()); diff != "" || len(single) != len(want) {
		t.Errorf("%d chunks of %d records: %s", len(single), len(want), diff)
	}
}

// TestHalveFails: a file that has changed is an error.
func TestHalveFails(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"shorter": func(path string) error { return os.Truncate(path, 20) },
		"blank":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("\n", 1000)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := temporary(t, numbered(50))
			source := open(t, path, CutOptions{})
			defer closeSource(t, source)
			c := drain(t, source)[0]
			must(t, damage(path))
			first, second, err := Halve(c, 1)
			wantKind(t, err, fault.Storage)
			if first != c || second != (Chunk{}) {
				t.Errorf("%+v and %+v", first, second)
			}
		})
	}
}
