package early

import (
	"os"
	"testing"
)

// Each record counts once, however many logs have its answer, without failures, without what
// is committed, and up to what is damaged.
func TestCount(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 0, 10)
	last := filled(t, dir, 5, 20)
	if err := last.Add(20, Answer{Verdict: Failure}); err != nil {
		t.Fatal(err)
	}
	none := func(int64) bool { return false }
	if n := len(Answered(dir, none)); n != 20 {
		t.Errorf("%d answers, want 20", n)
	}
	if n := len(Answered(dir, func(number int64) bool { return number < 3 || number == 15 })); n != 16 {
		t.Errorf("%d answers that are not committed, want 16", n)
	}
	if err := os.Truncate(last.path, last.places[19].offset+1); err != nil {
		t.Fatal(err)
	}
	if n := len(Answered(dir, none)); n != 19 {
		t.Errorf("%d answers of a log that ends early, want 19", n)
	}
}
