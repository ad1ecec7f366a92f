package process

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// fileKernel returns what it finds under the names a and b.
type fileKernel struct{ plugins.Base }

func (fileKernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
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
	host, kernel, end := pairedArenas(protocol.SmallArenaSize)
	if host == nil {
		t.Skip("no shared memory here")
	}
	defer end()
	shared := func(text string) []byte {
		memory := host.Alloc(len(text))
		t.Cleanup(memory.Free)
		return memory.Bytes()[:copy(memory.Bytes(), text)]
	}
	heap := func(text string) []byte { return []byte(text) }
	for name, make := range map[string]func(string) []byte{"arena": shared, "heap": heap} {
		for how, ends := range map[string][2]*protocol.Arena{"shared": {host, kernel}, "inline": {}} {
			t.Run(name+" "+how, func(t *testing.T) {
				proxy, end := loopback(fileKernel{}, ends[0], ends[1])
				defer end()
				if _, err := proxy.Describe(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				last := make("last") // its memory comes before that of the others
				files := [][]byte{make("first"), make("second"), {}, bytes.Repeat(make("x"), 10), nil, last}
				batch := plugins.NewBatch([][]byte{[]byte("1"), []byte("2"), []byte("3")}).WithFetched([]string{"a", "b"}, files)
				results, err := plugins.Call(t.Context(), proxy, batch)
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
