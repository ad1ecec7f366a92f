package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// outcome is the result of a chunk: what is reported, as JSON, and its files by suffix.
type outcome struct {
	Done  string
	Files map[string]string
}

// differs describes how an outcome differs from what it should be: "" if it does not.
func (o outcome) differs(want outcome) string {
	switch {
	case o.Done != want.Done:
		return "reported " + o.Done + "\ninstead of " + want.Done
	case !maps.Equal(o.Files, want.Files):
		return fmt.Sprintf("the files are %q\ninstead of %q", o.Files, want.Files)
	}
	return ""
}

func outcomeOf(t *testing.T, a wire.Assign, done wire.Done) outcome {
	t.Helper()
	paths, _ := filepath.Glob(a.Part + "*")
	done.Segment.Files[2] = chunk.FileSum{} // the failures name the file, which differs
	done.Batches = 0
	s := &done.Stats
	s.Busy, s.Input, s.Output, s.Latency, s.Batches, s.Restarts, s.Retries = 0, 0, 0, nil, 0, 0, 0 // a crash in another chunk counts too
	text, err := json.MarshalIndent(done, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{strings.ReplaceAll(string(text), a.Chunk.File, "FILE"), make(map[string]string)}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Files[strings.TrimPrefix(path, a.Part)] = strings.ReplaceAll(string(data), a.Chunk.File, "FILE")
	}
	return o
}

// TestNextChunkReadAhead: beginning the next chunk while the current one is computed does
// not change the outcome of either, whatever happens in them. If the kernel dies, the next
// chunk is given back untouched.
func TestNextChunkReadAhead(t *testing.T) {
	do := func(what string) string {
		return numbered(0, 20) + `{"do":"` + what + "\"}\n" + numbered(20, 25)
	}
	inputs := map[string]string{
		"plain": numbered(0, 40), "short": numbered(0, 1), "error": do("error"), "exit": do("exit"), "oom": do("oom"),
		"error, exit": numbered(0, 20) + `{"do":"error"}` + "\n" + `{"do":"exit"}` + "\n" + numbered(20, 22),
		"no JSON":     numbered(0, 20) + strings.Repeat("no\n", 20), "marked": strings.Repeat(`{"_error":"old"}`+"\n", 20),
	}
	alone := make(map[string]outcome)
	for name, input := range inputs {
		w, a := newWorker(t, "members", 4), assign(t, input)
		done, err := w.compute(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		alone[name] = outcomeOf(t, a, done)
	}
	names := slices.Sorted(maps.Keys(inputs))
	half := rand.IntN(2) // of the pairs; make test-all runs both
	for i, first := range names {
		for k, second := range names {
			if (i+k)%2 != half && os.Getenv("GPURUN_TEST_ALL") == "" {
				continue
			}
			t.Run(first+" "+second, func(t *testing.T) {
				w := newWorker(t, "members", 4)
				w.assigned = make(chan wire.Assign, 1)
				a, b := assign(t, inputs[first]), assign(t, inputs[second])
				w.assigned <- b
				c, err := w.beginAll(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				done, err := c.finish()
				if err != nil {
					t.Fatal(err)
				}
				if diff := outcomeOf(t, a, done).differs(alone[first]); diff != "" {
					t.Error(diff)
				}
				switch given := len(c.lanes) == 0; {
				case strings.HasSuffix(first, "exit"): // the kernel was lost: other workers may have it
					if left := outcomeOf(t, b, wire.Done{}).Files; !given || len(left) > 0 {
						t.Fatalf("the next chunk was not given back: %v", left)
					}
					done, err = w.compute(t.Context(), b)
				case given && first == "short": // it ended before the next was begun
					done, err = w.compute(t.Context(), <-w.assigned)
				case given:
					t.Fatal("the next chunk was not begun")
				default:
					done, err = c.finish()
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := outcomeOf(t, b, done).differs(alone[second]); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestStopBetweenChunks: a stop ends the current chunk after the current batch, but not the
// next chunk, and nothing of either is lost.
func TestStopBetweenChunks(t *testing.T) {
	w := newWorker(t, "members", 4)
	w.assigned = make(chan wire.Assign, 1)
	a, b := assign(t, numbered(0, 40)), assign(t, numbered(40, 80))
	c, err := w.beginAll(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	first, next := c.lanes[0], c.lanes[1]
	for len(w.computing.flight) < 2 {
		if _, err := c.turn(); err != nil {
			t.Fatal(err)
		}
	}
	w.stops.assign(0)
	w.stops.request(wire.Stop{})
	done, err := c.finish()
	if err != nil {
		t.Fatal(err)
	}
	if first.handedBack == nil || done.Segment.Tally.Records+first.handedBack.Records != 40 || done.Rest != nil {
		t.Errorf("first: done %d, left %+v, rest %+v", done.Segment.Tally.Records, first.handedBack, done.Rest)
	}
	if done, err = c.finish(); err != nil {
		t.Fatal(err)
	}
	if done.Segment.Tally.Records != 40 || done.Rest != nil || next.handedBack != nil {
		t.Errorf("next: done %d, rest %+v", done.Segment.Tally.Records, done.Rest)
	}
}
