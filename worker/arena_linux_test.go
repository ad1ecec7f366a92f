package worker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// arenas counts the shared memory mappings of this process.
func arenas(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("memfd:gpurun-arena"))
}

// allGivenBack closes the kernel. Its arena stays mapped while an unreleased batch is in
// it.
func allGivenBack(t *testing.T, w *Worker) {
	t.Helper()
	if arenas(t) == 0 {
		t.Error("the records are not in shared memory")
	}
	_ = w.host.close()
	for deadline := time.Now().Add(10 * time.Second); arenas(t) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the memory of a batch was never freed")
		}
	}
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"text\":%d}\n", i)
	}
	return b.String()
}

// TestMemoryIsGivenBack: whatever happens to a chunk, the memory of its batches is freed at
// its end.
func TestMemoryIsGivenBack(t *testing.T) {
	do := func(what string) string {
		return numbered(0, 50) + fmt.Sprintf("{\"do\":%q}\n", what) + numbered(50, 100)
	}
	for name, input := range map[string]string{
		"plain": numbered(0, 100), "blank lines at the end": numbered(0, 96) + strings.Repeat("\n \n", 100_000),
		"error": do("error"), "crash": do("exit"), "write to a record": do("write"), "elsewhere": do("oom"),
		"too long": numbered(0, 50) + `"` + strings.Repeat("x", 3<<20) + "\"\n" + numbered(50, 100),
		"no JSON":  numbered(0, 50) + strings.Repeat("no\n", 20) + numbered(50, 100),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, "members", 8)
			for range 2 {
				if _, err := w.compute(t.Context(), assign(t, input)); err != nil {
					t.Fatal(err)
				}
			}
			allGivenBack(t, w)
		})
	}
	t.Run("canceled", func(t *testing.T) {
		w := newWorker(t, "members", 8)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := w.compute(ctx, assign(t, do("hang"))); err == nil {
			t.Error("no error")
		}
		allGivenBack(t, w)
	})
	t.Run("stopped", func(t *testing.T) {
		w := newWorker(t, "members", 8)
		reader, err := w.startReading(t.Context(), assign(t, numbered(0, 100)))
		if err != nil {
			t.Fatal(err)
		}
		for len(reader.batches) < cap(reader.batches) {
			time.Sleep(time.Millisecond)
		}
		reader.stop()
		allGivenBack(t, w)
	})
}

// TestInputs: a kernel finds its members where the worker says they are, among lines that
// it never sees, and again when a batch is bisected.
func TestInputs(t *testing.T) {
	w := newWorker(t, "members", 6)
	a := assign(t, strings.Join([]string{
		`{"text":"one"}`, `not JSON`, `{"a":{"text":"inner"},"text":[2]}`, `{"_error":"old","text":"upstream"}`, ``,
		`{"no":"text"}`, `[1]`, "{\"text\" :\t4.0 }\r",
		`{"text":"behind","do":"error"}`, `{"do":"good","text":"five"}`, `{"text":"six"}`, `"` + strings.Repeat("x", 2<<20) + `"`,
		`{"text":"seven"}`, `{"do":"exit"}`, `{"text":"eight"}`, `{"do":"write"}`, `{"text":"\u006eine"}`,
	}, "\n"))
	w.setup.Records.ErrorsApart = true
	done, err := w.compute(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(a.Part + "*")
	got := ""
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(data, []byte(`{"text":"\"one`)) {
			got = string(data)
		}
	}
	want := strings.Join([]string{
		`{"text":"\"one\"","present":true}`, `{"text":"[2]","present":true}`, `{"text":"","present":false}`, `{"text":"","present":false}`,
		`{"text":"4.0","present":true}`, `{"text":"\"five\"","present":true}`, `{"text":"\"six\"","present":true}`,
		`{"text":"\"seven\"","present":true}`, `{"text":"\"eight\"","present":true}`, `{"text":"\"\\u006eine\"","present":true}`, "",
	}, "\n")
	if got != want {
		t.Errorf("%s\ninstead of\n%s\nfiles: %v", got, want, files)
	}
	if done.Segment.Tally.Failed != 6 || done.Segment.Tally.Succeeded != 10 {
		t.Errorf("done: %+v", done.Segment.Tally.Counts)
	}
	allGivenBack(t, w)
}

// TestInlineGivesTheSame: the parts are the same without shared memory.
func TestInlineGivesTheSame(t *testing.T) {
	t.Setenv("GPURUN_INLINE", "1")
	w := newWorker(t, "members", 6)
	a := assign(t, numbered(0, 20))
	done, err := w.compute(t.Context(), a)
	if err != nil || done.Segment.Tally.Succeeded != 20 {
		t.Errorf("%+v: %v", done, err)
	}
	if arenas(t) > 0 || w.host.alloc(1) != nil {
		t.Error("there is shared memory")
	}
}
