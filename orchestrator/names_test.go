package orchestrator_test

import (
	"context"
	"os"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestNamesThatAreNotUTF8: a name that JSON cannot represent is refused before anything
// is created: workers, and a run that resumes the job, would look for another file.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d jobDir, c *orchestrator.Config){
		"input": func(d jobDir, c *orchestrator.Config) {
			c.Input.Path = d.join("\xffin")
			appendTo(d, "\xffin", numbered(3))
		},
		"output": func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("\xffout") },
		"parts":  func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("\xffout") + "/" },
		"errors": func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("\xfferrors") },
		"work folder": func(d jobDir, c *orchestrator.Config) {
			c.Resume.WorkDir = d.join("\xffwork")
			if err := os.Mkdir(c.Resume.WorkDir, 0o777); err != nil {
				t.Fatal(err)
			}
		},
		"working folder": func(d jobDir, c *orchestrator.Config) { c.Dir = d.join("\xff") },
		"kernel":         func(d jobDir, c *orchestrator.Config) { c.Kernel.Name = "exec:\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(3))
			c := d.config("echo")
			change(d, &c)
			before := tree(d.path)
			_, err := run(t, c)
			wantFault(t, err, fault.Usage, "UTF-8", `\xff`)
			_, err = orchestrator.MakePlan(context.Background(), c)
			wantFault(t, err, fault.Usage, "UTF-8", `\xff`)
			if after := tree(d.path); len(after) != len(before) {
				t.Errorf("left: %q", after)
			}
		})
	}
	// A link with another name works.
	d := newJobDir(t, numbered(3))
	c := d.config("echo")
	c.Input.Path = d.join("link")
	appendTo(d, "\xffin", numbered(2))
	if err := os.Symlink("\xffin", c.Input.Path); err != nil {
		t.Fatal(err)
	}
	mustRun(t, d, c)
	if d.read("out.jsonl") != numbered(2) {
		t.Error("output differs")
	}
}
