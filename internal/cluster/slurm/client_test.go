package slurm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/files"
)

// answer puts a program in the place of one of Slurm's.
func answer(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestMaxArraySize(t *testing.T) {
	for name, one := range map[string]struct {
		script string
		want   int
		fault  string
	}{
		"default":     {"echo 'Configuration data'; echo 'MaxArraySize            = 1001'; echo 'MaxJobCount = 5'", 1001, ""},
		"no arrays":   {"echo 'MaxArraySize = 0'", 0, "no array jobs"},
		"other words": {"echo 'nothing'", 0, "names no MaxArraySize"},
		"controller":  {"echo 'Unable to contact slurm controller' >&2; exit 1", 0, "scontrol failed: Unable to contact slurm controller"},
	} {
		answer(t, "scontrol", one.script)
		got, err := MaxArraySize(context.Background())
		if got != one.want || (err == nil) != (one.fault == "") || err != nil && !strings.Contains(err.Error(), one.fault) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := MaxArraySize(context.Background()); err == nil || !strings.Contains(err.Error(), "login node") {
		t.Errorf("without Slurm: %v", err)
	}
}

func TestSubmit(t *testing.T) {
	for name, one := range map[string]struct{ script, want, fault string }{
		"plain":     {"cat >/dev/null; echo 4711", "4711", ""},
		"clusters":  {"cat >/dev/null; echo '4711;north'", "4711", ""},
		"chatty":    {"cat >/dev/null; echo 'Welcome!'; echo 4711", "4711", ""},
		"no number": {"cat >/dev/null; echo later", "", "printed no job id"},
		"refused":   {"echo 'sbatch: error: Invalid account' >&2; exit 1", "", "Invalid account"},
		"reads":     {"grep -q 'exec gpurun' && echo 1", "1", ""},
	} {
		answer(t, "sbatch", one.script)
		got, err := Submit(context.Background(), "#!/bin/bash\nexec gpurun\n")
		if got != one.want || (err == nil) != (one.fault == "") || err != nil && !strings.Contains(err.Error(), one.fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestLive(t *testing.T) {
	answer(t, "squeue", "echo '7|3|RUNNING'; echo '7|12|PENDING'; echo '8|N/A|PENDING'; echo '9|1|RUNNING'; echo; echo 'x|y'")
	got, err := Live(context.Background(), []string{"7", "8"})
	want := []Task{{"7", "RUNNING", 3}, {"7", "PENDING", 12}, {"8", "PENDING", -1}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	if got, err := Records(filepath.Join(dir, "none")); got != nil || err != nil {
		t.Errorf("no folder: %v, %v", got, err)
	}
	one := Record{Arrays: []Submitted{{Job: "1", Script: "/x y/s.sh"}}, Merge: "2"}
	if err := files.WriteJSON(filepath.Join(dir, "1.json"), one, files.PrivateMode); err != nil {
		t.Fatal(err)
	}
	got, err := Records(dir)
	if diff := cmp.Diff([]Record{one}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if got := one.Resubmit(); got != "sbatch --array=%s '/x y/s.sh'" {
		t.Error(got)
	}
	if got := (Record{Arrays: []Submitted{{Job: "1"}, {Job: "2", Offset: 1001}}}).Resubmit(); got != "" {
		t.Errorf("shards of two arrays: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "2.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Records(dir); err == nil || !strings.Contains(err.Error(), "2.json") {
		t.Errorf("damaged: %v", err)
	}
}
