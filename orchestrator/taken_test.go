package orchestrator_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// TestNameTakenMeanwhile: a file that another program puts where the output or the
// errors file will be stays, unless --force was given; the completed job waits for the
// name.
func TestNameTakenMeanwhile(t *testing.T) {
	t.Parallel()
	in := numbered(400)
	file := func(name string) func(d jobDir) {
		return func(d jobDir) { appendTo(d, name, "mine\n") }
	}
	folder := func(name string) func(d jobDir) {
		return func(d jobDir) {
			if err := os.Mkdir(d.join(name), 0o777); err != nil {
				d.t.Error(err)
			}
			appendTo(d, name+"/notes.txt", "mine\n")
		}
	}
	for name, test := range map[string]struct {
		taken  string
		take   func(d jobDir)
		parts  bool
		forced []bool // force replaces a file, but not with a folder; a folder only if gpurun wrote it
	}{
		"output":             {"out.jsonl", file("out.jsonl"), false, []bool{false, true}},
		"output by a folder": {"out.jsonl", folder("out.jsonl"), false, []bool{false}},
		"errors":             {"errors.jsonl", file("errors.jsonl"), false, []bool{false, true}},
		"errors of parts":    {"errors.jsonl", file("errors.jsonl"), true, []bool{false, true}},
		"parts":              {"out", folder("out"), true, []bool{false}},
		"parts by a file":    {"out", file("out"), true, []bool{false}},
	} {
		for _, force := range test.forced {
			t.Run(fmt.Sprintf("%s, forced %t", name, force), func(t *testing.T) {
				t.Parallel()
				d := newJobDir(t, in)
				c := slowJob(d)
				c.Output.Errors = d.join("errors.jsonl")
				if test.parts {
					c.Output.Path = d.join("out") + "/"
				}
				output := func() string {
					if test.parts {
						return concatenated(d)
					}
					return d.read("out.jsonl")
				}
				_, _, err := disturbed(t, c, func() { test.take(d) })
				wantFault(t, err, fault.Conflict, d.join(test.taken), "[output-taken ]")
				_, err = run(t, c)
				wantFault(t, err, fault.Conflict, d.join(test.taken), "[output-taken ]")
				mine := test.taken
				if info, err := os.Stat(d.join(mine)); err == nil && info.IsDir() {
					mine += "/notes.txt"
				}
				if got := d.read(mine); got != "mine\n" {
					t.Fatalf("replaced by %q", got)
				}
				if c.Output.Force = force; !force {
					if err := os.Rename(d.join(test.taken), d.join("away")); err != nil {
						t.Fatal(err)
					}
				}
				if report := mustRun(t, d, c); report.Resumed != 400 || output() != in || d.read("errors.jsonl") != "" {
					t.Errorf("report: %+v", report)
				}
			})
		}
	}
}

// TestTwoJobsOneOutput: if two jobs with separate job folders have the same output, the
// second to end does not replace the first one's result.
func TestTwoJobsOneOutput(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(400))
	c := slowJob(d)
	other := d.config("echo")
	other.Resume.WorkDir, other.Input.Limit = d.join("work"), 30
	if err := os.Mkdir(other.Resume.WorkDir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, _, err := disturbed(t, c, func() { mustRun(t, d, other) })
	wantFault(t, err, fault.Conflict, "out.jsonl", "[output-taken ]")
	if d.read("out.jsonl") != numbered(30) {
		t.Error("the first one's output was removed")
	}
	c.Output.Force = true
	if report := mustRun(t, d, c); report.Resumed != 400 || d.read("out.jsonl") != numbered(400) {
		t.Errorf("report: %+v", report)
	}
}
