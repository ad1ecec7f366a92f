package orchestrator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// watch counts events and runs a function at each.
func watch(c *orchestrator.Config, at func(name string, passing int, e orchestrator.Event)) {
	passed := make(map[string]int)
	c.Display.OnEvent = func(e orchestrator.Event) {
		passed[e.EventName()]++
		at(e.EventName(), passed[e.EventName()], e)
	}
}

// interrupt runs a job that is asked to stop at its n-th event of that name.
func interrupt(t *testing.T, c orchestrator.Config, event string, n int) orchestrator.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch(&c, func(name string, passing int, _ orchestrator.Event) {
		if name == event && passing == n {
			cancel()
		}
	})
	report, err := runContext(t, ctx, c)
	wantFault(t, err, fault.Canceled)
	return report
}

// resumes runs a job that must resume an earlier run, and report it.
func resumes(t *testing.T, d jobDir, c orchestrator.Config) orchestrator.Report {
	t.Helper()
	var resuming int64
	watch(&c, func(_ string, _ int, e orchestrator.Event) {
		if e, ok := e.(orchestrator.Resuming); ok {
			resuming = e.Done
		}
	})
	report := mustRun(t, d, c)
	if resuming == 0 || report.Resumed != resuming {
		t.Errorf("resuming from %d, report says %d", resuming, report.Resumed)
	}
	return report
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestStopAndResume: after ^C the same job resumes where it was, also with other
// devices and another batch size.
func TestStopAndResume(t *testing.T) {
	t.Parallel()
	for i, v := range rotation(0, func(*variant) bool { return true }) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			d, c := v.start(t)
			// Both stops must arrive before the last of the eight chunks is done.
			c.Kernel.Config = bytes.Replace(c.Kernel.Config, []byte(`"Milliseconds":6`), []byte(`"Milliseconds":20`), 1)
			first := interrupt(t, adapted(c), "chunk_done", 1+i%3)
			if first.Pending == 0 && !first.Uncounted || exists(c.Output.Path) && !c.Output.Force {
				t.Fatalf("report: %+v", first)
			}
			done := first.In - first.Pending
			if i%2 == 0 {
				second := interrupt(t, adapted(c), "chunk_done", 1)
				if second.Resumed < done {
					t.Errorf("%d records were done, and the next run found %d", done, second.Resumed)
				}
				done = second.Resumed + 1
			}
			c.Devices.GPUs, c.Batching.Size = "cpu:1", 5+i
			last := resumes(t, d, adapted(c))
			if last.Resumed < done {
				t.Errorf("%d records were done, and the last run found %d", done, last.Resumed)
			}
			checkFinished(t, d, c, v.undisturbed(t), "")
		})
	}
}

// TestStopTwice: a job that is asked to stop and then aborted ends at once and can be
// resumed.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	v := derive("errors apart")
	d, c := v.start(t)
	abort := make(chan struct{})
	c.Abort = abort
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watched := c
	watch(&watched, func(name string, passing int, _ orchestrator.Event) {
		switch {
		case name == "chunk_done" && passing == 4:
			cancel()
		case name == "stopping":
			close(abort)
		}
	})
	_, err := runContext(t, ctx, watched)
	wantFault(t, err, fault.Canceled)
	c.Abort = nil
	resumes(t, d, c)
	checkFinished(t, d, c, v.undisturbed(t), "")
}

// TestOtherJobIsRefused: what the output depends on must not change between runs, and
// the message says what did.
func TestOtherJobIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(d jobDir, c *orchestrator.Config)
		texts  []string
	}{
		{"input longer", func(d jobDir, c *orchestrator.Config) {
			appendTo(d, "in.jsonl", "{}\n")
		}, []string{"the size of the input", "[job-changed ]"}},
		{"input edited in place", func(d jobDir, c *orchestrator.Config) {
			edit(t, c.Input.Path, func(b []byte) []byte { b[6] = 'x'; return b })
		}, []string{"the input ", " has different bytes between offsets 0 and"}},
		{"input edited in place, with its old time", func(d jobDir, c *orchestrator.Config) {
			info, _ := os.Stat(c.Input.Path)
			edit(t, c.Input.Path, func(b []byte) []byte { b[6] = 'x'; return b })
			_ = os.Chtimes(c.Input.Path, info.ModTime(), info.ModTime())
		}, []string{"the input ", " has different bytes"}},
		{"input edited in place and longer", func(d jobDir, c *orchestrator.Config) {
			edit(t, c.Input.Path, func(b []byte) []byte { b[6] = 'x'; return append(b, "{}\n"...) })
		}, []string{"the size of the input"}},
		{"another input", func(d jobDir, c *orchestrator.Config) {
			c.Input.Path = d.join("other.jsonl")
			appendTo(d, "other.jsonl", "{}\n")
		}, []string{"other.jsonl"}},
		{"another part of it", func(_ jobDir, c *orchestrator.Config) { c.Input.Limit = 77 }, []string{"the limit was not set and is now 77"}},
		{"another kernel", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name = "echo" }, []string{"the kernel was", "[job-changed kernel]"}},
		{"kernel file", func(d jobDir, c *orchestrator.Config) { appendTo(d, "kernel.sh", "# changed\n") },
			[]string{"kernel.sh", "[job-changed kernel]"}},
		{"errors apart", func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors") }, []string{"the errors file was not set"}},
		{"keep", func(_ jobDir, c *orchestrator.Config) { c.Output.Keep = []string{"id"} }, []string{"the members to keep was not set"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d, c := execJob(t)
			interrupt(t, c, "chunk_done", 3)
			before := tree(jobFolder(c))
			test.change(d, &c)
			_, err := run(t, c)
			wantFault(t, err, fault.Conflict, append(test.texts, "the job has changed since it began")...)
			if exists(c.Output.Path) {
				t.Error("there is an output")
			}
			if diff := differences(before, tree(jobFolder(c))); diff != "" {
				t.Errorf("what was done is touched: %s", diff)
			}
		})
	}
}

// TestTouchedInputIsResumed: a new timestamp alone does not make a different input, nor
// does a copy; the user learns why the job is resumed.
func TestTouchedInputIsResumed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"touched": func(path string) error {
			now := time.Now().Add(time.Hour)
			return os.Chtimes(path, now, now)
		},
		"copied": func(path string) error {
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".new", data, 0o666)
			}
			if err == nil {
				err = os.Rename(path+".new", path)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := execJob(t)
			interrupt(t, c, "chunk_done", 3)
			if err := change(c.Input.Path); err != nil {
				t.Fatal(err)
			}
			notices, err := resumedWith(t, c)
			if err != nil || !strings.Contains(notices, "its content is unchanged") {
				t.Fatalf("%v, notices %q", err, notices)
			}
			if d.read("out.jsonl") != numbered(300) {
				t.Error("output differs")
			}
			if err := change(c.Input.Path); err != nil {
				t.Fatal(err)
			}
			if report := mustRun(t, d, c); report.Resumed != 300 { // already finished
				t.Errorf("report: %+v", report)
			}
		})
	}
}

// TestTouchedByteCutInput: an input that is cut while it is read is compared as far as
// it was computed, using checksums kept next to the journal; without them its timestamp
// decides.
func TestTouchedByteCutInput(t *testing.T) {
	t.Parallel()
	touchInput := func(c orchestrator.Config) {
		now := time.Now().Add(time.Hour)
		_ = os.Chtimes(c.Input.Path, now, now)
	}
	for name, test := range map[string]struct {
		change func(c orchestrator.Config)
		text   string // of the refusal
	}{
		"touched": {touchInput, ""},
		"edited": {func(c orchestrator.Config) {
			edit(t, c.Input.Path, func(b []byte) []byte { b[6] = 'x'; return b })
		}, "the content of the input"},
		"touched, without sums": {func(c orchestrator.Config) {
			touchInput(c)
			_ = os.Remove(jobFolder(c) + "/input.chunks")
		}, "was modified at"},
		"touched, sums cut": {func(c orchestrator.Config) {
			touchInput(c)
			edit(t, jobFolder(c)+"/input.chunks", func(b []byte) []byte { return b[:20] })
		}, "was modified at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := execJob(t)
			c.Input.Split = "bytes"
			interrupt(t, c, "chunk_done", 3)
			interrupt(t, c, "chunk_done", 1)
			test.change(c)
			if test.text != "" {
				_, err := run(t, c)
				wantFault(t, err, fault.Conflict, "the input", test.text)
				return
			}
			resumes(t, d, c)
			if d.read("out.jsonl") != numbered(300) || exists(jobFolder(c)+"/input.chunks") {
				t.Error("output differs, or the sums are left")
			}
		})
	}
}

func appendTo(d jobDir, name, text string) {
	d.t.Helper()
	file, err := os.OpenFile(d.join(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
}

// execJob is a job whose kernel is a script.
func execJob(t *testing.T) (jobDir, orchestrator.Config) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("NOT TESTED: no bash")
	}
	d := newJobDir(t, numbered(300))
	appendTo(d, "kernel.sh", "while read -r line; do echo \"$line\"; sleep 0.002; done\n")
	c := d.config("exec:bash kernel.sh")
	c.Dir, c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.Checkpoint = d.path, 5, 4, 50*time.Millisecond
	return d, c
}

// TestAcceptChanges: accepting changes keeps finished work and resumes; --fresh does
// not.
func TestAcceptChanges(t *testing.T) {
	t.Parallel()
	d, c := execJob(t)
	interrupt(t, c, "chunk_done", 2)
	appendTo(d, "kernel.sh", "# changed\n")
	c.Resume.AcceptChanges = []string{"kernel"}
	interrupt(t, c, "chunk_done", 1)
	c.Resume.AcceptChanges = nil // the job now has the new kernel
	resumes(t, d, c)
	if d.read("out.jsonl") != numbered(300) {
		t.Error("output differs")
	}
}

func TestFresh(t *testing.T) {
	t.Parallel()
	d, c := execJob(t)
	interrupt(t, c, "chunk_done", 3)
	if err := os.WriteFile(c.Input.Path, []byte(numbered(40)), 0o666); err != nil {
		t.Fatal(err)
	}
	c.Resume.Fresh = true
	if report := mustRun(t, d, c); report.Resumed != 0 || d.read("out.jsonl") != numbered(40) {
		t.Errorf("report: %+v", report)
	}
}

// TestCompleteJobOfAnother: a job that only lacks the final rename is finished by its
// own command, not by another.
func TestCompleteJobOfAnother(t *testing.T) {
	t.Parallel()
	d, c := execJob(t)
	mark := fmt.Sprintf("complete-%d", os.Getpid())
	end := startDriver(t, driverOf(t, c), mark, crash.Variable+"=complete").wait(t)
	if !end.killed {
		t.Fatalf("ended: %s", end)
	}
	appendTo(d, "in.jsonl", "{}\n")
	_, err := run(t, c)
	wantFault(t, err, fault.Conflict, "the input")
	if err := os.WriteFile(c.Input.Path, []byte(numbered(30)), 0o666); err != nil {
		t.Fatal(err)
	}
	c.Resume.Fresh = true
	mustRun(t, d, c)
	if d.read("out.jsonl") != numbered(30) {
		t.Error("not started over")
	}
}

func TestWorkDirAndClean(t *testing.T) {
	t.Parallel()
	start := func() (jobDir, orchestrator.Config) {
		d, c := derive("a work folder").start(t)
		c.Resume.Clean = true
		if err := os.WriteFile(c.Input.Path, []byte(numbered(600)), 0o666); err != nil { // of which none fails
			t.Fatal(err)
		}
		return d, c
	}
	d, c := start()
	interrupt(t, c, "chunk_done", 3)
	if exists(c.Output.Path+".gpurun") || !exists(jobFolder(c)) {
		t.Errorf("the job folder is elsewhere: %v", tree(d.path))
	}
	resumes(t, d, c)
	undisturbed, c := start()
	mustRun(t, undisturbed, c)
	if d.read("out.jsonl") != undisturbed.read("out.jsonl") {
		t.Error("output differs")
	}
	if diff := differences([]string{"in.jsonl", "out.jsonl", "work"}, tree(d.path)); diff != "" {
		t.Errorf("left: %s", diff)
	}
}

// TestTinyCheckpoint: however short the checkpoint interval, work is done between two
// checkpoints, and a job finishes.
func TestTinyCheckpoint(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(60))
	c := d.config("test-slow")
	c.Batching.Size, c.Resume.Checkpoint, c.Kernel.Config = 5, time.Nanosecond, []byte(`{"Milliseconds":1}`)
	c.Devices.GPUs = "cpu:1" // so that no other worker takes work away
	watch(&c, func(_ string, _ int, e orchestrator.Event) {
		if e, ok := e.(orchestrator.ChunkDone); ok && e.Counts.Records == 0 {
			t.Error("a checkpoint of nothing")
		}
	})
	mustRun(t, d, c)
	if d.read("out.jsonl") != numbered(60) {
		t.Error("output differs")
	}
}

// TestMaxTime: a job stops such that the same command resumes it.
func TestMaxTime(t *testing.T) {
	t.Parallel()
	v := derive()
	d, c := v.start(t)
	c.Resume.MaxTime = 300 * time.Millisecond
	hurry := filepath.Join(t.TempDir(), "hurry")
	c.Kernel.Config = fmt.Appendf(nil, `{"Milliseconds":200,"Until":%q}`, hurry) // 8 s
	for stops, done := 0, int64(0); stops < 2; {
		report, err := run(t, c)
		wantFault(t, err, fault.Stopped, "[limit-reached max-time]")
		switch now := report.Succeeded + report.Failed + report.Dropped; {
		case report.Pending == 0 && !report.Uncounted || c.Resume.MaxTime > time.Minute:
			t.Fatalf("after %d stops: %+v", stops, report)
		case now > done:
			stops, done = stops+1, now
		default: // this machine needs longer to begin
			c.Resume.MaxTime *= 2
		}
	}
	touch(hurry)
	c.Resume.MaxTime = time.Hour
	mustRun(t, d, c)
	checkFinished(t, d, c, v.undisturbed(t), "")
}

// TestHalt: too many failures stop the job; the same command resumes it until there are
// as many more.
func TestHalt(t *testing.T) {
	t.Parallel()
	for name, halt := range map[string]orchestrator.Halt{"records": {Records: 12}, "percent": {Percent: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := derive() // 7.5 % of 600 fail
			d, c := v.start(t)
			c.Failures.Halt = halt
			stops := 0
			for ; ; stops++ {
				report, err := run(t, c)
				if err == nil {
					break
				}
				wantFault(t, err, fault.Stopped, "[limit-reached halt]")
				if done := report.Failed; done < 12 || report.Pending == 0 {
					t.Errorf("stopped at %d failures, %d pending", done, report.Pending)
				}
			}
			if stops < 1 || stops > 4 { // of 45 failures, at least 12 each time
				t.Errorf("stopped %d times", stops)
			}
			checkFinished(t, d, c, v.undisturbed(t), "")
		})
	}
}
