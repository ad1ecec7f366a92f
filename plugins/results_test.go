package plugins

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestLinesOfNoneIsDrop(t *testing.T) {
	r := NewResults(1)
	r.Lines(0)
	r.complete(nil)
	if got := r.At(0).Verdict; got != Dropped {
		t.Errorf("verdict %s", got)
	}
}

// TestResultsAreSmall: verdicts without data allocate nothing, and the first verdict with data leaves the others unchanged.
func TestResultsAreSmall(t *testing.T) {
	r := NewResults(5)
	r.Unchanged(0)
	r.Drop(1)
	r.Column(Float64s("x", 0, make([]float64, 5)))
	if r.lines != nil || r.refusals != nil {
		t.Error("memory is allocated before a verdict needs it")
	}
	r.Line(2, []byte("1"))
	r.FailIn(3, "step", "no")
	r.complete(nil)
	want := []Result{
		{Verdict: Unchanged}, {Verdict: Dropped}, {Verdict: Lines, Lines: [][]byte{[]byte("1")}},
		{Verdict: Failed, Message: "no", Step: "step"}, {Verdict: Columns},
	}
	for i := range want {
		if diff := cmp.Diff(want[i], r.At(i)); diff != "" {
			t.Errorf("record %d: %s", i, diff)
		}
	}
}

func TestVerdictNames(t *testing.T) {
	for v, want := range map[Verdict]string{0: "no verdict", 1: "unchanged", 2: "lines", 3: "columns", 4: "drop", 5: "fail", 6: "verdict 6", 255: "verdict 255"} {
		if v.String() != want {
			t.Errorf("verdict %d: %q", uint8(v), v.String())
		}
	}
}

func TestConfigDecode(t *testing.T) {
	type config struct{ Size int }
	for text, want := range map[string]int{``: 7, "\n": 7, `{}`: 7, `{"size":3}`: 3, `null`: 7} {
		c := config{Size: 7}
		if err := Config(text).Decode(&c); err != nil || c.Size != want {
			t.Errorf("%q: %d, %v", text, c.Size, err)
		}
	}
	for text, want := range map[string]string{
		`{"sise":3}`: `unknown field "sise"; did you mean Size?`, `{"colors":3}`: `unknown field "colors"; the settings are Size`, `{"size":"3"}`: "Size must be a whole number, not a string", `{"size":3}}`: "unexpected data after", `{`: "unexpected", `1`: "it must be an object, not a number",
	} {
		err := Config(text).Decode(&config{})
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
