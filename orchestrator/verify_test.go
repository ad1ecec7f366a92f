package orchestrator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// durableJob is a job that was killed with part of its output durable.
func durableJob(t *testing.T, parts bool) (d jobDir, c orchestrator.Config, want map[string]string) {
	t.Helper()
	v := &variant{name: "durable", records: 480, change: func(d jobDir, c *orchestrator.Config) {
		if parts {
			c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 500
		}
	}}
	want = v.undisturbed(t)
	d, c, _ = killedWithParts(t, v)
	return d, c, want
}

// durableFiles returns the files of the unfinished output.
func durableFiles(t *testing.T, c orchestrator.Config) []string {
	t.Helper()
	path := jobFolder(c) + "/output.partial"
	if parts, _ := filepath.Glob(path + "/part-*"); len(parts) > 0 {
		return parts
	}
	return []string{path}
}

// resumedWith runs the job and returns its notices.
func resumedWith(t *testing.T, c orchestrator.Config) (notices string, err error) {
	t.Helper()
	watch(&c, func(_ string, _ int, e orchestrator.Event) {
		if e, ok := e.(orchestrator.Notice); ok {
			notices += e.Text + "\n"
		}
	})
	_, err = run(t, c)
	return notices, err
}

// TestDamagedOutputIsComputedAgain: whatever happened to the unfinished output between
// two runs, the finished one is right, whether the damage is found before the work
// starts or alongside it.
func TestDamagedOutputIsComputedAgain(t *testing.T) {
	t.Parallel()
	for _, parts := range []bool{false, true} {
		t.Run(fmt.Sprintf("parts %t", parts), func(t *testing.T) {
			t.Parallel()
			d, c, want := durableJob(t, parts)
			putBack := snapshot(t, jobFolder(c))
			for name, damage := range map[string]func(path string) error{
				"flipped": func(path string) error {
					data, err := os.ReadFile(path)
					if err == nil {
						data[0] ^= 4 // certainly durable
						err = os.WriteFile(path, data, 0o666)
					}
					return err
				},
				"removed": os.Remove,
			} {
				for _, c := range []orchestrator.Config{c, orchestrator.WithOutputCheckBeside(c)} {
					putBack()
					_ = os.RemoveAll(c.Output.Path)
					if err := damage(durableFiles(t, c)[0]); err != nil {
						t.Fatal(err)
					}
					notices, err := resumedWith(t, c)
					if err != nil {
						t.Fatalf("%s: %v\n%s", name, err, d.logs())
					}
					if !strings.Contains(notices, "was damaged") {
						t.Errorf("%s: notices: %q", name, notices)
					}
					if diff := differences(want, results(d, c)); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
				}
			}
		})
	}
}

// TestCompleteOutputIsChecked: a job that only lacks the final rename is not renamed if
// its bytes are not what it wrote.
func TestCompleteOutputIsChecked(t *testing.T) {
	t.Parallel()
	d, c := execJob(t)
	mark := fmt.Sprintf("checked-%d", os.Getpid())
	if end := startDriver(t, driverOf(t, c), mark, crash.Variable+"=complete").wait(t); !end.killed {
		t.Fatalf("ended: %s", end)
	}
	edit(t, jobFolder(c)+"/output.partial", func(b []byte) []byte { b[len(b)-3] ^= 1; return b })
	mustRun(t, d, c)
	if d.read("out.jsonl") != numbered(300) {
		t.Error("output differs")
	}
}

// TestDamageAfterTheRename: a job whose output has its name can only start over by replacing
// that, and the fault names the setting.
func TestDamageAfterTheRename(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(c orchestrator.Config) string{
		"journal": func(c orchestrator.Config) string { return jobFolder(c) + "/journal" },
		"job":     func(c orchestrator.Config) string { return jobFolder(c) + "/job.json" },
		"output":  func(c orchestrator.Config) string { return c.Output.Path },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := execJob(t)
			if end := startDriver(t, driverOf(t, c), "renamed-"+name, crash.Variable+"=clearing").wait(t); !end.killed {
				t.Fatalf("ended: %s", end)
			}
			edit(t, damage(c), func(b []byte) []byte { return append([]byte("x"), b...) })
			_, err := run(t, c)
			wantFault(t, err, fault.Conflict, "[job-damaged force]")
			c.Resume.Fresh, c.Output.Force = true, true
			mustRun(t, d, c)
			if d.read("out.jsonl") != numbered(300) {
				t.Error("output differs")
			}
		})
	}
}

// TestUnreadableJournalIsKept: an error other than "no such file" deletes nothing.
func TestUnreadableJournalIsKept(t *testing.T) {
	t.Parallel()
	d, c := execJob(t)
	interrupt(t, c, "chunk_done", 3)
	journal := jobFolder(c) + "/journal"
	if err := os.Rename(journal, journal+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("journal", journal); err != nil { // ELOOP, for root too
		t.Fatal(err)
	}
	before := tree(jobFolder(c))
	_, err := run(t, c)
	wantFault(t, err, fault.Storage, "journal")
	if diff := differences(before, tree(jobFolder(c))); diff != "" {
		t.Errorf("what was done is touched: %s", diff)
	}
	if err := os.Rename(journal+".aside", journal); err != nil {
		t.Fatal(err)
	}
	resumes(t, d, c)
}

// TestJournalGapIsReported: a hole in the unsynced tail of the journal costs the work
// after it, and the user is notified.
func TestJournalGapIsReported(t *testing.T) {
	t.Parallel()
	v := &variant{name: "gap", records: 480, change: func(jobDir, *orchestrator.Config) {}}
	want := v.undisturbed(t)
	d, c := v.start(t)
	c.Resume.Checkpoint = 20 * time.Millisecond
	job := driverOf(t, c)
	job.DurableEvery = time.Hour // so that nothing is synced
	mark := fmt.Sprintf("gap-%d", os.Getpid())
	if end := startDriver(t, job, mark, crash.Variable+"=part-written:10").wait(t); !end.killed {
		t.Fatalf("ended: %s", end)
	}
	awaitGone(t, mark)
	edit(t, jobFolder(c)+"/journal", func(b []byte) []byte {
		lines := strings.SplitAfter(string(b), "\n")
		lines[3] = strings.Repeat("\x00", len(lines[3]))
		return []byte(strings.Join(lines, ""))
	})
	notices, err := resumedWith(t, c)
	if err != nil || !strings.Contains(notices, "the journal is damaged after its last durable point") {
		t.Fatalf("%v, notices %q", err, notices)
	}
	if diff := differences(want, results(d, c)); diff != "" {
		t.Error(diff)
	}
}

// TestOutputRemovedMeanwhile: a job whose unfinished output is removed reports it, and
// the same command computes the lost records again.
func TestOutputRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, parts := range []bool{false, true} {
		t.Run(fmt.Sprintf("parts %t", parts), func(t *testing.T) {
			t.Parallel()
			in := numbered(400)
			d := newJobDir(t, in)
			c := slowJob(d)
			if parts {
				c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 300
			}
			_, _, err := disturbed(t, c, func() { _ = os.Remove(durableFiles(t, c)[0]) })
			wantFault(t, err, fault.Storage, "was removed while the job ran")
			mustRun(t, d, c)
			got := ""
			for _, path := range finishedFiles(c) {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				got += string(data)
			}
			if got != in {
				t.Error("output differs")
			}
		})
	}
}

func finishedFiles(c orchestrator.Config) []string {
	if parts, _ := filepath.Glob(c.Output.Path + "part-*"); strings.HasSuffix(c.Output.Path, "/") {
		return parts
	}
	return []string{c.Output.Path}
}

// TestPartBordersSurviveAnEarlyKill: once a job is planned its parts keep their
// boundaries, even if it is killed before anything is computed and resumed by fewer
// workers.
func TestPartBordersSurviveAnEarlyKill(t *testing.T) {
	t.Parallel()
	v := &variant{name: "borders", records: 480, change: func(d jobDir, c *orchestrator.Config) {
		c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 1 // each chunk is a part
	}}
	want := v.undisturbed(t)
	d, c := v.start(t)
	mark := fmt.Sprintf("borders-%d", os.Getpid())
	if end := startDriver(t, driverOf(t, c), mark, crash.Variable+"=part-written").wait(t); !end.killed {
		t.Fatalf("ended: %s", end)
	}
	awaitGone(t, mark)
	if journalled(t, c) > 0 {
		t.Fatal("something was computed: this test shows nothing")
	}
	c.Devices.GPUs = "cpu:1"
	mustRun(t, d, c)
	if diff := differences(want, results(d, c)); diff != "" {
		t.Error(diff)
	}
}
