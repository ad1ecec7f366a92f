package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// computed computes a chunk and returns the content of its part.
func computed(t *testing.T, w *Worker, input string) string {
	t.Helper()
	a := assign(t, input)
	done, err := w.compute(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if done.Rest != nil {
		t.Errorf("not computed: %+v", done.Rest)
	}
	return outcomeOf(t, a, done).Files[".out"]
}

// TestKillsFromOutsideCostNoRecord: a record is not blamed for a process that was killed
// from outside, whatever the batch size.
func TestKillsFromOutsideCostNoRecord(t *testing.T) {
	for _, size := range []int{1, 4} {
		w := newWorker(t, "members", size)
		out := computed(t, w, numbered(0, 6)+`{"do":"killed twice"}`+"\n"+numbered(6, 12))
		if strings.Contains(out, "_error") || strings.Count(out, "\n") != 13 {
			t.Errorf("batches of %d:\n%s", size, out)
		}
	}
}

// TestKillsFromOutsideKeepTheBatch: a batch whose process is killed twice from outside is still
// computed as one, as the plan says.
func TestKillsFromOutsideKeepTheBatch(t *testing.T) {
	w := newWorker(t, "members", 4)
	out := computed(t, w, numbered(0, 4)+`{"do":"killed twice"}`+"\n"+strings.Repeat(`{"do":"count"}`+"\n", 3))
	if strings.Count(out, `{"batch":4}`) != 3 {
		t.Error(out)
	}
}

// TestKillsWhateverIsComputedCostNoRecord: if good records lose their process as well, the
// current one is not to blame.
func TestKillsWhateverIsComputedCostNoRecord(t *testing.T) {
	w := newWorker(t, "members", 1)
	if out := computed(t, w, numbered(0, 4)); strings.Contains(out, "_error") {
		t.Fatal(out)
	}
	if err := os.WriteFile(filepath.Join(w.setup.Dir, "siege"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if out := computed(t, w, numbered(4, 8)); strings.Contains(out, "_error") {
		t.Error(out)
	}
}

// TestEndlessKillsAreTheWorkersFailure: while every process is killed, no record is blamed,
// and the worker fails.
func TestEndlessKillsAreTheWorkersFailure(t *testing.T) {
	w := newWorker(t, "members", 1)
	if out := computed(t, w, numbered(0, 4)); strings.Contains(out, "_error") {
		t.Fatal(out)
	}
	w.proof.control = kill(w.proof.control)
	_, err := w.compute(t.Context(), assign(t, `{"do":"kill"}`+"\n"))
	if fault.KindOf(err) != fault.Worker || !strings.Contains(err.Error(), "killed from outside") {
		t.Error(err)
	}
}

// kill turns a record that dies into a control.
func kill(control *batchTask) *batchTask {
	c := *control
	c.records = [][]byte{[]byte(`{"do":"kill"}`)}
	c.spans = []uint32{6, 6, 0, 0}
	return &c
}

// TestRecordThatKillsIsMarked: a record that is killed every time while others are not is
// to blame, with or without another to compare it with.
func TestRecordThatKillsIsMarked(t *testing.T) {
	for name, before := range map[string]string{"with control": numbered(0, 2), "without": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, "members", 1)
			out := computed(t, w, before+`{"do":"kill"}`+"\n"+numbered(2, 4))
			if strings.Count(out, `"kind":"crash"`) != 1 || strings.Count(out, "_error") != 1 {
				t.Error(out)
			}
		})
	}
}

// TestLeakingKernelLosesNoRecord: a process that has used up the host's memory is replaced,
// and a fresh one computes what it could not.
func TestLeakingKernelLosesNoRecord(t *testing.T) {
	for _, size := range []int{1, 4} {
		w := newWorker(t, "members", size)
		out := computed(t, w, strings.Repeat(`{"do":"leak"}`+"\n", 50))
		if strings.Contains(out, "_error") || strings.Count(out, "\n") != 50 {
			t.Errorf("batches of %d:\n%s", size, out)
		}
		if w.sizes.size() != size {
			t.Errorf("batches of %d became %d, although a fresh process computes them", size, w.sizes.size())
		}
	}
}

// TestRecordTooLargeForTheHostIsMarked: a record for which even a fresh process runs out of
// memory fails alone, whether or not the process survives it.
func TestRecordTooLargeForTheHostIsMarked(t *testing.T) {
	for _, how := range []string{"huge", "huge in Go"} {
		t.Run(how, func(t *testing.T) {
			w := newWorker(t, "members", 4)
			out := computed(t, w, numbered(0, 6)+`{"do":"`+how+`"}`+"\n"+numbered(6, 12))
			if strings.Count(out, `"kind":"oom","message":"out of host memory, even alone in a fresh process"`) != 1 || strings.Count(out, "_error") != 1 {
				t.Error(out)
			}
		})
	}
}

// TestFailureOfTheBatchIsKept: if a record fails with another message than its batch did,
// both are in failures.jsonl, and the output has only the record's.
func TestFailureOfTheBatchIsKept(t *testing.T) {
	w := newWorker(t, "members", 8)
	a := assign(t, numbered(0, 3)+`{"do":"short"}`+"\n"+numbered(3, 7))
	done, err := w.compute(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	files := outcomeOf(t, a, done).Files
	if !strings.Contains(files[".out"], `"message":"0 values for 1 records"`) {
		t.Error(files[".out"])
	}
	if !strings.Contains(files[".failures"], "the batch of 8 records failed with: 7 values for 8 records") {
		t.Error(files[".failures"])
	}
}

// TestBatchThatDoesNotFitNextToOthers: while added workers share the memory, the chunk ends
// before such a batch; neither the batch size nor a record pays for it.
func TestBatchThatDoesNotFitNextToOthers(t *testing.T) {
	for _, do := range []string{"oom", "huge"} {
		w := newWorker(t, "members", 4)
		input := numbered(0, 6) + `{"do":"` + do + `"}` + "\n" + numbered(6, 12)
		w.sharing.Store(true)
		a := assign(t, input)
		done, err := w.compute(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		out := outcomeOf(t, a, done).Files[".out"]
		if !done.Crowded || done.Rest == nil || done.Rest.First != 4 || strings.Contains(out, "_error") || strings.Count(out, "\n") != 4 || w.sizes.size() != 4 {
			t.Errorf("%s: rest %+v, batches of %d:\n%s", do, done.Rest, w.sizes.size(), out)
		}
		w.sharing.Store(false)
		a = assign(t, input)
		a.Final = true
		if done, err = w.compute(t.Context(), a); err != nil || strings.Count(outcomeOf(t, a, done).Files[".out"], "_error") != 1 {
			t.Errorf("%s, alone: %+v, %v", do, done, err)
		}
	}
}
