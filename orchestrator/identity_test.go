package orchestrator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// failing has a record that test-mending repairs.
const failing = "{\"id\":1}\n{\"id\":2,\"do\":\"fail\"}\n"

// inWorkDir returns two jobs whose outputs have the same name, in one work folder.
func inWorkDir(t *testing.T, kernel string) (d jobDir, a, b orchestrator.Config) {
	t.Helper()
	d = newJobDir(t, failing)
	for _, name := range []string{"a", "b", "work"} {
		if err := os.Mkdir(d.join(name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.join("other.jsonl"), []byte("{\"other\":1}\n{\"other\":2,\"do\":\"fail\"}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	a = d.config(kernel)
	a.Resume.WorkDir = d.join("work")
	b = a
	a.Output.Path, b.Output.Path = d.join("a/out.jsonl"), d.join("b/out.jsonl")
	return d, a, b
}

func retryRepaired(t *testing.T, c orchestrator.Config) (orchestrator.Report, error) {
	t.Helper()
	return orchestrator.Retry(context.Background(), orchestrator.Config{
		Output: orchestrator.Output{Path: c.Output.Path}, Resume: orchestrator.Resume{WorkDir: c.Resume.WorkDir}, Devices: orchestrator.Devices{GPUs: "cpu:1"}, Kernel: orchestrator.Kernel{Config: []byte(`{"Repaired":true}`)},
	})
}

// TestOneWorkDirServesOutputsOfTheSameName: each output has its own job folder, and a
// retry rewrites the output that it was given.
func TestOneWorkDirServesOutputsOfTheSameName(t *testing.T) {
	t.Parallel()
	d, a, b := inWorkDir(t, "test-mending")
	mustRun(t, d, a)
	if report := mustRun(t, d, b); report.Resumed != 0 {
		t.Errorf("the second job resumed %d records of the first", report.Resumed)
	}
	other := b
	other.Input.Path, other.Output.Path = d.join("other.jsonl"), d.join("a/../b/third/../third.jsonl")
	if err := os.Mkdir(d.join("b/third"), 0o777); err != nil {
		t.Fatal(err)
	}
	mustRun(t, d, other)
	before := d.read("b/out.jsonl")
	if report, err := retryRepaired(t, a); err != nil || report.Failed != 0 {
		t.Fatalf("%v, %+v", err, report)
	}
	if d.read("a/out.jsonl") != failing || d.read("b/out.jsonl") != before {
		t.Errorf("a is %q, b is %q", d.read("a/out.jsonl"), d.read("b/out.jsonl"))
	}
	if status, err := orchestrator.Inspect(b.Output.Path, b.Resume.WorkDir); err != nil || status.Report.Failed != 1 {
		t.Errorf("status of b: %v, %+v", err, status)
	}
}

// TestWorkDirOfAnotherOutputIsLeftAlone: a job folder that records another output is
// not used, whatever its name.
func TestWorkDirOfAnotherOutputIsLeftAlone(t *testing.T) {
	t.Parallel()
	d, a, b := inWorkDir(t, "test-mending")
	mustRun(t, d, a)
	ofA, err := filepath.Glob(d.join("work/*.gpurun"))
	if err != nil || len(ofA) != 1 {
		t.Fatalf("job folders: %v, %v", ofA, err)
	}
	_, err = retryRepaired(t, b)
	wantFault(t, err, fault.Usage, "no job found for")
	mustRun(t, d, b)
	both, _ := filepath.Glob(d.join("work/*.gpurun"))
	ofB := slices.DeleteFunc(both, func(folder string) bool { return folder == ofA[0] })
	if len(ofB) != 1 {
		t.Fatalf("job folders: %v", ofB)
	}
	if err := os.RemoveAll(ofB[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ofA[0], ofB[0]); err != nil {
		t.Fatal(err)
	}
	was := d.read("a/out.jsonl")
	_, err = retryRepaired(t, b)
	wantFault(t, err, fault.Conflict, "a/out.jsonl", "b/out.jsonl")
	_, err = run(t, b)
	wantFault(t, err, fault.Conflict, "a/out.jsonl", "b/out.jsonl")
	if d.read("a/out.jsonl") != was {
		t.Error("a was changed")
	}
}

// TestRetryOfACopyRewritesTheCopy: a folder that was copied or moved with its outputs is
// retried where it is now. An errors file that may belong to another job is refused.
func TestRetryOfACopyRewritesTheCopy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		errors, copied string   // the errors file, and the copied output
		leave          []string // what is not copied
		refused        []string
	}{
		"no errors file":        {"", "copy/out.jsonl", nil, nil},
		"errors beside it":      {"a/errors.jsonl", "copy/out.jsonl", nil, nil},
		"errors elsewhere":      {"b/errors.jsonl", "copy/out.jsonl", nil, []string{"b/errors.jsonl", "outside the output's folder", "a/out.jsonl"}},
		"errors left behind":    {"a/errors.jsonl", "copy/out.jsonl", []string{"errors.jsonl"}, []string{"a/errors.jsonl to ", "copy/errors.jsonl, then retry it"}},
		"errors shared":         {"a/errors.jsonl", "a/copy.jsonl", nil, []string{"a/errors.jsonl", "may belong to that one"}},
		"errors in a subfolder": {"a/failed/errors.jsonl", "copy/out.jsonl", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, a, b := inWorkDir(t, "test-mending")
			a.Resume.WorkDir, b.Resume.WorkDir = "", ""
			if test.errors != "" {
				a.Output.Errors = d.join(test.errors)
				if err := os.MkdirAll(filepath.Dir(a.Output.Errors), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, d, a)
			before, failed := d.read("a/out.jsonl"), ""
			if test.errors != "" {
				failed = d.read(test.errors)
			}
			b.Output.Path = d.join(test.copied)
			copyJob(t, a.Output.Path, b.Output.Path, test.leave...)
			_, err := retryRepaired(t, b)
			switch {
			case test.refused != nil:
				wantFault(t, err, fault.Conflict, test.refused...)
			case err != nil || d.read(test.copied) != failing:
				t.Errorf("%v, the copy is %q", err, d.read(test.copied))
			case test.errors != "":
				status, err := orchestrator.Inspect(b.Output.Path, "")
				if want := strings.Replace(a.Output.Errors, "/a/", "/copy/", 1); err != nil || status.Report.Errors != want {
					t.Errorf("%v, the errors are in %s, want %s", err, status.Report.Errors, want)
				}
			}
			if d.read("a/out.jsonl") != before || test.errors != "" && d.read(test.errors) != failed {
				t.Error("the original was changed")
			}
		})
	}
}

// copyJob copies an output and its job folder, with everything beside them if they go to
// another folder.
func copyJob(t *testing.T, from, to string, leave ...string) {
	t.Helper()
	var err error
	if filepath.Dir(from) == filepath.Dir(to) {
		var data []byte
		if data, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		err = errors.Join(err, os.CopyFS(to+".gpurun", os.DirFS(from+".gpurun")))
	} else {
		err = os.CopyFS(filepath.Dir(to), os.DirFS(filepath.Dir(from)))
		for _, name := range leave {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(to), name)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRetryThroughALinkKeepsTheLink: the file that the link leads to is rewritten.
func TestRetryThroughALinkKeepsTheLink(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, failing)
	if err := os.Symlink("real.jsonl", d.join("out.jsonl")); err != nil {
		t.Fatal(err)
	}
	c := d.config("test-mending")
	mustRun(t, d, c)
	if _, err := retryRepaired(t, c); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(c.Output.Path); err != nil || link != "real.jsonl" || d.read("real.jsonl") != failing {
		t.Errorf("%v, link %q, real.jsonl is %q", err, link, d.read("real.jsonl"))
	}
}
