package worker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/wire"
)

// newGroupingWorker returns a worker that groups by text.
func newGroupingWorker(t *testing.T, batchSize int) *Worker {
	w := newWorker(t, "members", batchSize)
	w.setup.Records.GroupBy = "text"
	return w
}

// unequal returns n records with texts of random lengths.
func unequal(n int) string {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"text":"%s"}`+"\n", i, strings.Repeat("x", random.IntN(50)))
	}
	return b.String()
}

// TestGroupedOutcome: grouping changes neither the output nor what is left to others,
// whatever happens in a window.
func TestGroupedOutcome(t *testing.T) {
	do := func(what string) string { return `{"do":"` + what + `","text":"xxxxxxxxxx"}` + "\n" }
	in := func(what ...string) string {
		text := unequal(30)
		for _, one := range what {
			text += do(one) + unequal(11)
		}
		return text
	}
	for name, lines := range map[string]string{
		"plain": in(), "short": unequal(1), "error": in("error"), "exit": in("exit"),
		"kill": in("killed twice"), "host memory": in("huge"), "leak": in("leak", "leak", "leak"),
		"oom": in("oom"), "oom in many places": in("oom", "oom", "oom"), "oom at once": do("oom") + unequal(20),
		"everything":           in("error", "exit", "huge in Go", "error", "exit"),
		"oom after others":     in("error", "oom", "exit"),
		"no JSON, blank lines": unequal(9) + "no\n\n" + unequal(9) + strings.Repeat("no\n", 20) + unequal(3),
		"nothing to compute":   strings.Repeat("no\n", 70),
		"too long":             unequal(9) + `{"text":"` + strings.Repeat("y", 2<<20) + `"}` + "\n" + unequal(9),
		"not objects":          "1\n\"a\"\n[1,2]\n" + unequal(40) + "null\n",
		"no member":            strings.Repeat(`{"id":1}`+"\n", 50),
	} {
		for _, final := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, final %t", name, final), func(t *testing.T) {
				var outcomes [2]outcome
				for i, w := range []*Worker{newWorker(t, "members", 4), newGroupingWorker(t, 4)} {
					a := assign(t, lines)
					a.Final = final
					done, err := w.compute(t.Context(), a)
					if err != nil {
						t.Fatal(err)
					}
					done.Stats = wire.Stats{}
					outcomes[i] = outcomeOf(t, a, done)
				}
				if diff := outcomes[1].differs(outcomes[0]); diff != "" {
					t.Errorf("grouped, it has %s", diff)
				}
			})
		}
	}
}

// TestWindowsAreGrouped: batches are cut from whole windows, which the figures show.
func TestWindowsAreGrouped(t *testing.T) {
	w := newGroupingWorker(t, 4)
	done, err := w.compute(t.Context(), assign(t, unequal(4*windowBatches+2)))
	if err != nil {
		t.Fatal(err)
	}
	if s := done.Stats; s.Batches != windowBatches+1 || s.Cost == 0 || float64(s.Padded) > 1.2*float64(s.Cost) {
		t.Errorf("%d batches, cost %d, padded %d", s.Batches, s.Cost, s.Padded)
	}
}

// slowly returns n records with texts of the given lengths, of which every fourth takes
// 30 ms, and the stop that follows when the third of those is being computed.
func slowly(t *testing.T, w *Worker, n int, length func(i int) int, stop wire.Stop) string {
	var b strings.Builder
	for i := range n {
		do := ""
		if i%4 == 1 {
			do = `"do":"slow",`
		}
		fmt.Fprintf(&b, `{%s"text":"%s"}`+"\n", do, strings.Repeat("x", length(i)))
	}
	go func() {
		for t.Context().Err() == nil {
			if info, err := os.Stat(filepath.Join(w.setup.Dir, "times")); err == nil && info.Size() >= 3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		w.stops.request(stop)
		w.pace.nudge()
	}()
	return b.String()
}

// TestStopInAWindow: a stop ends the chunk before the window and computes nothing more.
func TestStopInAWindow(t *testing.T) {
	const n = 64
	for name, length := range lengths(n) {
		t.Run(name, func(t *testing.T) {
			w := newGroupingWorker(t, 4)
			a := assign(t, slowly(t, w, n, length, wire.Stop{}))
			w.stops.assign(0)
			c, err := w.beginAll(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			run := c.lanes[0]
			done, err := c.finish()
			if err != nil {
				t.Fatal(err)
			}
			committed, batches := done.Segment.Tally.Records, done.Stats.Batches
			next := committed
			for _, rest := range []*chunk.Chunk{done.Rest, run.handedBack} {
				if rest != nil && rest.First != next {
					t.Errorf("record %d follows record %d", rest.First, next)
				}
				if rest != nil {
					next += rest.Records
				}
			}
			if committed > 0 || next != n || batches > 10 {
				t.Errorf("%d records committed, the rest ends at %d, %d batches computed", committed, next, batches)
			}
			out := outcomeOf(t, a, done).Files[".out"]
			if lines := strings.Count(out, "\n"); int64(lines) != committed {
				t.Errorf("%d lines for %d records", lines, committed)
			}
			b := a
			b.Chunk, b.Part = a.Chunk.Tail(done.Segment.Next, committed), a.Part+"-rest"
			if done, err = w.compute(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			sameAsPlain(t, a, out+outcomeOf(t, b, done).Files[".out"])
		})
	}
}

// TestCheckpointInAWindow: a checkpoint ends the part after the windows that are complete, and
// nothing is computed twice.
func TestCheckpointInAWindow(t *testing.T) {
	const n = 128
	for name, length := range lengths(n) {
		t.Run(name, func(t *testing.T) {
			w := newGroupingWorker(t, 4)
			first := int64(0)
			a := assign(t, slowly(t, w, n, length, wire.Stop{})) // no chunk was assigned before that stop
			c, err := w.beginAll(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			for c.lanes[0].rest.First == 0 {
				if _, err := c.turn(); err != nil {
					t.Fatal(err)
				}
			}
			w.stops.request(wire.Stop{Only: &first})
			if err := c.endLanes(); err != nil {
				t.Fatal(err)
			}
			dones := w.dones()
			last, err := c.finish()
			if err != nil || len(dones) != 1 {
				t.Fatal(err, dones)
			}
			cut, rest := dones[0], a.Part+"-1"
			if !cut.Continues || cut.Segment.Tally.Records != 64 || cut.Rest.First != 64 || last.Segment.Tally.Records != n-64 || cut.Stats.Batches+last.Stats.Batches > 2*windowBatches+2 {
				t.Errorf("%+v, then %+v", cut, last)
			}
			b := a
			b.Part = rest
			sameAsPlain(t, a, outcomeOf(t, a, cut).Files[".out"]+outcomeOf(t, b, last).Files[".out"])
		})
	}
}

// lengths are ways to distribute the lengths of n texts.
func lengths(n int) map[string]func(i int) int {
	return map[string]func(i int) int{
		"equal texts":    func(int) int { return 7 },
		"longest first":  func(i int) int { return n - i },
		"longest last":   func(i int) int { return i },
		"longest halves": func(i int) int { return i % 2 },
	}
}

// sameAsPlain checks that a chunk has the output that a worker computes which does not group.
func sameAsPlain(t *testing.T, a wire.Assign, out string) {
	t.Helper()
	data, _ := os.ReadFile(a.Chunk.File)
	if want := computed(t, newWorker(t, "members", 4), string(data)); out != want {
		t.Errorf("%q\ninstead of\n%q", out, want)
	}
}

// TestShareInAWindow: a worker that should share finishes its window and hands back what
// follows.
func TestShareInAWindow(t *testing.T) {
	const n = 3 * 4 * windowBatches
	w := newGroupingWorker(t, 4)
	a := assign(t, slowly(t, w, n, func(i int) int { return i }, wire.Stop{Share: true}))
	w.stops.assign(0)
	c, err := w.beginAll(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	run := c.lanes[0]
	done, err := c.finish()
	if err != nil {
		t.Fatal(err)
	}
	if done.Rest != nil || done.Segment.Tally.Records != 4*windowBatches || run.handedBack == nil || run.handedBack.Records != 2*4*windowBatches {
		t.Errorf("%d records committed, handed back %+v, rest %+v", done.Segment.Tally.Records, run.handedBack, done.Rest)
	}
}
