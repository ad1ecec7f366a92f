package orchestrator_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// stop is a way in which a job stops.
type stop struct {
	// change prepares the job; disturb runs at its third finished chunk.
	change  func(d jobDir, c *orchestrator.Config)
	disturb func(d jobDir, cancel context.CancelFunc) error
	// promised is what the report says that the same command does.
	promised orchestrator.Resumption
	// lost: finished work cannot be resumed and is computed again.
	lost bool
}

func unchanged(jobDir, *orchestrator.Config) {}

func canceled(_ jobDir, cancel context.CancelFunc) error { cancel(); return nil }

func undisturbed(jobDir, context.CancelFunc) error { return nil }

// stops lists all of them.
var stops = map[string]stop{
	"signal": {unchanged, canceled, orchestrator.ResumesAtOnce, false},
	"max time": {func(_ jobDir, c *orchestrator.Config) {
		c.Resume.MaxTime, c.Kernel.Config = time.Second, []byte(`{"Milliseconds":40}`) // far longer than that
	}, undisturbed, orchestrator.ResumesAtOnce, false},
	"halt": {func(d jobDir, c *orchestrator.Config) {
		c.Failures.Halt = orchestrator.Halt{Records: 1}
		appendTo(d, "in.jsonl", "no JSON\n"+numbered(200))
	}, undisturbed, orchestrator.ResumesAtOnce, false},
	"input truncated": {unchanged, func(d jobDir, _ context.CancelFunc) error { return os.Truncate(d.join("in.jsonl"), 1000) },
		orchestrator.ResumesAsAdvised, false},
	"input replaced": {unchanged, func(d jobDir, _ context.CancelFunc) error {
		d.write("other.jsonl", strings.ReplaceAll(numbered(400), "id", "xx"))
		return os.Rename(d.join("other.jsonl"), d.join("in.jsonl"))
	}, orchestrator.ResumesAsAdvised, false},
	"input gone": {unchanged, func(d jobDir, _ context.CancelFunc) error { return os.Rename(d.join("in.jsonl"), d.join("moved")) },
		orchestrator.ResumesWhenFixed, false},
	"output removed": {unchanged, func(d jobDir, _ context.CancelFunc) error {
		return os.Remove(d.join("out.jsonl.gpurun/output.partial"))
	},
		orchestrator.ResumesWhenFixed, true},
	"kernel edited": {func(d jobDir, c *orchestrator.Config) {
		d.write("kernel.sh", "sleep 0.02\ncat\n")
		c.Kernel.Name, c.Kernel.Config, c.Dir, c.Kernel.ExecMode = "exec:sh kernel.sh", nil, d.path, "batch"
	}, func(d jobDir, _ context.CancelFunc) error {
		d.write("edited", "sleep 0.02\ncat\n# edited\n")
		return os.Rename(d.join("edited"), d.join("kernel.sh"))
	}, orchestrator.ResumesAsAdvised, false},
	"stream in": {func(d jobDir, c *orchestrator.Config) {
		c.Input.Path, c.Input.Stdin, c.Input.ChunkRecords = "-", strings.NewReader(numbered(400)), 20
	}, canceled, orchestrator.ResumesSameStream, false},
	"stream out": {func(d jobDir, c *orchestrator.Config) {
		c.Output.Path, c.Output.Stdout, c.Resume.WorkDir = "-", io.Discard, d.join("work")
	}, canceled, orchestrator.ResumesNever, false},
	"stream out, input truncated": {func(d jobDir, c *orchestrator.Config) {
		c.Output.Path, c.Output.Stdout, c.Resume.WorkDir = "-", io.Discard, d.join("work")
	}, func(d jobDir, _ context.CancelFunc) error { return os.Truncate(d.join("in.jsonl"), 1000) }, orchestrator.ResumesNever, false},
	"reader gone": {func(d jobDir, c *orchestrator.Config) {
		c.Output.Path, c.Output.Stdout, c.Resume.WorkDir = "-", &closedSoon{}, d.join("work")
	}, undisturbed, orchestrator.ResumesNever, false},
}

// closedSoon is a pipe whose reader takes a little and leaves.
type closedSoon struct{ io.Writer }

func (c *closedSoon) Write(p []byte) (int, error) {
	if c.Writer == nil {
		reader, writer, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		reader.Close()
		c.Writer = writer
		return len(p), nil
	}
	return c.Writer.Write(p)
}

// TestReportPromisesWhatTheSameCommandDoes: however a job stops, its report correctly
// says whether the same command resumes it, and a job that cannot resume leaves no data
// behind.
func TestReportPromisesWhatTheSameCommandDoes(t *testing.T) {
	t.Parallel()
	for name, s := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(400))
			if err := os.Mkdir(d.join("work"), 0o777); err != nil {
				t.Fatal(err)
			}
			c := slowJob(d)
			s.change(d, &c)
			report := stopped(t, d, c, s)
			if report.Resume != s.promised {
				t.Fatalf("the report says %q, want %q: %v", report.Resume, s.promised, report.Stop)
			}
			if strings.Contains(report.Stop.Message, "same command") && s.promised != orchestrator.ResumesAsAdvised {
				t.Errorf("the reason promises something, too: %s", report.Stop.Message)
			}
			s.lost = s.lost || report.In == report.Pending // a slow machine had not computed anything
			s.keepsPromise(t, d, c)
		})
	}
}

// stopped runs the job until it stops.
func stopped(t *testing.T, d jobDir, c orchestrator.Config, s stop) orchestrator.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	warned := false
	watch(&c, func(name string, passing int, e orchestrator.Event) {
		if name == "chunk_done" && passing == 3 {
			if err := s.disturb(d, cancel); err != nil {
				t.Error(err)
			}
		}
		if notice, ok := e.(orchestrator.Notice); ok && strings.Contains(notice.Text, "cannot be resumed") {
			warned = true
		}
	})
	report, err := runContext(t, ctx, c)
	if err == nil || report.Stop == nil {
		t.Fatalf("the job did not stop: %+v", report)
	}
	if warned != (s.promised == orchestrator.ResumesNever) {
		t.Errorf("the user was warned that it cannot resume: %t", warned)
	}
	return report
}

// keepsPromise runs the same command again.
func (s stop) keepsPromise(t *testing.T, d jobDir, c orchestrator.Config) {
	t.Helper()
	c.Display.OnEvent, c.Resume.MaxTime, c.Failures.Halt = nil, 0, orchestrator.Halt{} // they would only stop it again
	switch s.promised {
	case orchestrator.ResumesNever:
		checkNoData(t, d)
		return
	case orchestrator.ResumesSameStream:
		c.Input.Stdin = strings.NewReader(numbered(400))
	case orchestrator.ResumesAsAdvised:
		if _, err := run(t, c); err == nil {
			t.Error("the same command was not refused")
		}
		return
	case orchestrator.ResumesWhenFixed:
		if exists(d.join("moved")) {
			if err := os.Rename(d.join("moved"), d.join("in.jsonl")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if report := mustRun(t, d, c); report.Resumed == 0 && !s.lost {
		t.Errorf("nothing was resumed: %+v", report)
	}
}

// checkNoData: a job that cannot resume leaves none of its records except, next to an
// output file, its results so far.
func checkNoData(t *testing.T, d jobDir) {
	t.Helper()
	for _, name := range tree(d.path) {
		switch base := filepath.Base(name); {
		case base == "spool", base == "parts", strings.Contains(name, "/spool/"), strings.Contains(name, "/parts/"),
			strings.HasSuffix(base, ".partial") && !strings.HasPrefix(name, "out.jsonl.gpurun/"):
			t.Errorf("left: %s", name)
		}
	}
}
