package retry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
)

type report struct{ Retried int }

// testJob is a job whose new files are complete and committed.
func testJob(t *testing.T) Job {
	t.Helper()
	folder := t.TempDir()
	j := New(folder)
	j.Output = filepath.Join(folder, "out.jsonl")
	if err := os.Mkdir(j.join(next), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"out.jsonl": "old\n", "failures.jsonl": "old failures\n",
		next + "/output.partial": "new\n", next + "/errors.partial": "not needed\n", next + "/failures.partial": "new failures\n",
	} {
		if err := os.WriteFile(j.join(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if Committed(folder) {
		t.Error("committed before Commit")
	}
	sum, err := chunk.SumFile(t.Context(), j.join(next, "output.partial"))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(t.Context(), report{Retried: 3}, commit.Manifest{Bytes: sum.Bytes, Parts: []commit.ManifestPart{{CRC32C: chunk.CRC(sum.CRC)}}}, nil); err != nil {
		t.Fatal(err)
	}
	if !Committed(folder) {
		t.Error("not committed after Commit")
	}
	return j
}

// TestReplaceContinues: whichever of the new files an earlier process has renamed, Replace
// leaves the same files.
func TestReplaceContinues(t *testing.T) {
	for name, renamed := range map[string]map[string]string{
		"none renamed":       {},
		"the output renamed": {"output.partial": "out.jsonl"},
		"all renamed":        {"output.partial": "out.jsonl", "failures.partial": "failures.jsonl", "errors.partial": "gone"},
	} {
		j := testJob(t)
		for from, to := range renamed {
			if err := os.Rename(j.join(next, from), j.join(to)); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var r report
		if err := j.Replace(&r); err != nil || r.Retried != 3 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		for file, want := range map[string]string{"out.jsonl": "new\n", "failures.jsonl": "new failures\n"} {
			if text, err := os.ReadFile(j.join(file)); err != nil || string(text) != want {
				t.Errorf("%s: %s has %q, %v", name, file, text, err)
			}
		}
		if _, err := os.Stat(j.join(next, "errors.partial")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file that is not needed remains: %v", name, err)
		}
		if err := j.Clear(); err != nil || Committed(j.Folder) {
			t.Errorf("%s: not cleared: %v", name, err)
		}
	}
}

// TestDamagedResultsReplaceNothing: new files that were damaged or lost since an interrupted retry
// made them are refused.
func TestDamagedResultsReplaceNothing(t *testing.T) {
	for name, damage := range map[string]func(Job) error{
		"cut":        func(j Job) error { return os.Truncate(j.join(next, "output.partial"), 2) },
		"empty":      func(j Job) error { return os.Truncate(j.join(next, "failures.partial"), 0) },
		"other byte": func(j Job) error { return os.WriteFile(j.join(next, "output.partial"), []byte("nex\n"), 0o600) },
		"lost":       func(j Job) error { return os.Remove(j.join(next, "output.partial")) },
	} {
		j := testJob(t)
		if err := damage(j); err != nil {
			t.Fatal(err)
		}
		if err := j.Check(t.Context()); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(j.Output); err != nil || string(text) != "old\n" {
			t.Errorf("%s: the output has %q, %v", name, text, err)
		}
	}
}

// TestReplaceDamaged: a damaged marker changes nothing.
func TestReplaceDamaged(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "cut": `{"report":{"Retr`, "other": `{"report":3}`} {
		j := testJob(t)
		if err := os.WriteFile(j.join(marker), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := j.Replace(new(report)); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(j.Output); err != nil || string(text) != "old\n" {
			t.Errorf("%s: the output has %q, %v", name, text, err)
		}
	}
}
