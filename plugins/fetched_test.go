package plugins

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// fileKernel returns what it finds under the names a and b.
type fileKernel struct{ Base }

func (fileKernel) Process(_ context.Context, batch Batch, results *Results) error {
	for i := range batch.Len() {
		a, foundA := batch.Fetched(i, "a")
		b, foundB := batch.Fetched(i, "b")
		_, foundC := batch.Fetched(i, "c")
		results.Line(i, fmt.Appendf(nil, "[%q,%t,%q,%t,%t]", a, foundA, b, foundB, foundC))
	}
	return nil
}

// Files reach the kernel in any order in memory, from any memory, and without an arena.
func TestFetched(t *testing.T) {
	host, kernel := pairedArenas(smallArenaSize)
	if host == nil {
		t.Skip("no shared memory here")
	}
	defer host.close()
	shared := func(text string) []byte {
		memory := host.alloc(len(text))
		t.Cleanup(memory.Free)
		return memory.Bytes()[:copy(memory.Bytes(), text)]
	}
	heap := func(text string) []byte { return []byte(text) }
	for name, make := range map[string]func(string) []byte{"arena": shared, "heap": heap} {
		for how, ends := range map[string][2]*arena{"shared": {host, kernel}, "inline": {}} {
			t.Run(name+" "+how, func(t *testing.T) {
				proxy, end := loopback(fileKernel{}, ends[0], ends[1])
				defer end()
				if _, err := proxy.Describe(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				last := make("last") // its memory comes before that of the others
				files := [][]byte{make("first"), make("second"), {}, bytes.Repeat(make("x"), 10), nil, last}
				batch := NewBatch([][]byte{[]byte("1"), []byte("2"), []byte("3")}).WithFetched([]string{"a", "b"}, files)
				results, err := Call(t.Context(), proxy, batch)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range []string{`["first",true,"second",true,false]`, `["",true,"xxxxxxxxxx",true,false]`, `["",true,"last",true,false]`} {
					if got := string(results.At(i).Lines[0]); got != want {
						t.Errorf("record %d: %s, want %s", i, got, want)
					}
				}
			})
		}
	}
}

// A message that does not fit is an error and never a panic.
func TestFetchedIsValidated(t *testing.T) {
	_, kernel := pairedArenas(smallArenaSize)
	if kernel == nil {
		t.Skip("no shared memory here")
	}
	batch := NewBatch([][]byte{[]byte("1"), []byte("2")})
	zero := uint64(0)
	const half = smallArenaSize / 2
	at := func(gaps []int64, lengths ...uint32) *kernelpb.Block {
		return &kernelpb.Block{Offset: &zero, Gaps: gaps, Lengths: lengths}
	}
	for name, files := range map[string]*kernelpb.Block{
		"no files":        nil,
		"too few":         at([]int64{0}, 1),
		"fewer lengths":   at([]int64{0, 0}, 1),
		"fewer gaps":      at([]int64{1}, 1, 1),
		"outside":         at([]int64{0, 1 << 62}, 1, 1),
		"before the half": at([]int64{0, -2}, 1, 1),
		"the other half":  at([]int64{0, half}, 1, 1),
		"past the end":    at([]int64{0, half - 2}, 1, 2),
		"a short block":   {Inline: []byte("ab"), Lengths: []uint32{1, 2}},
		"one in a block":  {Inline: []byte("ab"), Lengths: []uint32{2}},
	} {
		if _, err := batch.withFetched([]*kernelpb.Fetched{{Files: files}}, kernel); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := []*kernelpb.Fetched{{Name: "a", Files: at([]int64{half - 1, -half}, 1, 0)}}
	if _, err := batch.withFetched(good, kernel); err != nil {
		t.Error(err)
	}
	if _, err := batch.withFetched(good, nil); err == nil {
		t.Error("accepted without shared memory")
	}
}
