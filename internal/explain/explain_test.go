package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestEntries: every code has exactly one entry, every entry has a code and says something in
// each of its parts.
func TestEntries(t *testing.T) {
	titles, left := make(map[string]bool), fault.Codes()
	for _, area := range Areas() {
		if area.Title == "" || area.Page == "" {
			t.Errorf("%+v: no title or page", area)
		}
		for _, e := range area.Entries {
			i := slices.Index(left, e.Code)
			switch {
			case i < 0:
				t.Errorf("%s is not a code, or has two entries", e.Code)
			case titles[e.Title]:
				t.Errorf("two entries %q", e.Title)
			case e.Title == "" || len(strings.Fields(e.Cause)) < 4 || e.Fix == "":
				t.Errorf("%s: title, cause or fix is missing", e.Code)
			case !strings.HasSuffix(e.Cause, "."):
				t.Errorf("%s: write sentences", e.Code)
			}
			titles[e.Title] = true
			if i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("no entry for %q", left)
	}
}

// TestIn: the codes of a log are found, each once; other words in brackets are not.
func TestIn(t *testing.T) {
	log := "[1] reading\ngpurun: input a.jsonl does not exist [no-such-input]\n  | a[i]\ngpurun: again [no-such-input]\ngpurun: oh [bug]"
	var got []fault.Code
	for _, e := range In(log) {
		got = append(got, e.Code)
	}
	if !slices.Equal(got, []fault.Code{fault.NoSuchInput, fault.Bug}) {
		t.Errorf("%q", got)
	}
}
