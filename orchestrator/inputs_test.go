package orchestrator_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// writeGzip writes a compressed file.
func writeGzip(t testing.TB, path, text string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil || file.Close() != nil {
		t.Fatal(err)
	}
}

// interrupted runs a job and cancels it after some chunks.
func interrupted(t *testing.T, c orchestrator.Config, chunks int) orchestrator.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch(&c, func(name string, passing int, _ orchestrator.Event) {
		if name == "chunk_done" && passing == chunks {
			cancel()
		}
	})
	report, err := runContext(t, ctx, c)
	wantFault(t, err, fault.Canceled)
	return report
}

// TestStreamResumes: a stream is resumed at every point if the same bytes arrive again, and
// refused if others do.
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	text := mixed(400)
	d := newJobDir(t, text)
	c := slowJob(d)
	want := c
	want.Output.Path = d.join("want.jsonl")
	mustRun(t, d, want)
	c.Input.Path, c.Input.ChunkRecords = "-", 20
	c.Input.Stdin = strings.NewReader(text)
	for range 3 {
		report := interrupted(t, c, 3)
		if report.Resume != orchestrator.ResumesSameStream {
			t.Fatalf("the report says %q", report.Resume)
		}
		c.Input.Stdin = strings.NewReader(strings.Replace(text, "id", "xx", 1))
		_, err := run(t, c)
		wantFault(t, err, fault.Conflict, "not what an earlier run read")
		c.Input.Stdin = strings.NewReader(text[:200])
		_, err = run(t, c)
		wantFault(t, err, fault.Conflict, "fewer records")
		c.Input.Stdin = strings.NewReader(text)
	}
	if report := mustRun(t, d, c); report.Resumed == 0 {
		t.Error("nothing was resumed")
	}
	if d.read("out.jsonl") != d.read("want.jsonl") {
		t.Error("the output differs from that of a file")
	}
}

// TestStreamStoppedBeforeItsOffset: a job that has computed nothing of a stream yet resumes, also
// if its first record is not the stream's.
func TestStreamStoppedBeforeItsOffset(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, "")
	c := d.config("echo")
	c.Input.Path, c.Input.Offset, c.Output.Path = "-", 50, d.join("out.jsonl.gz")
	stdin, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = io.WriteString(writer, numbered(10)) }()
	c.Input.Stdin = stdin
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := c
	watch(&stopped, func(name string, _ int, _ orchestrator.Event) {
		if name == "worker_ready" {
			cancel()
		}
	})
	_, err := runContext(t, ctx, stopped)
	wantFault(t, err, fault.Canceled)
	c.Input.Stdin = strings.NewReader(numbered(100))
	if report := mustRun(t, d, c); report.Succeeded != 50 {
		t.Errorf("%d records succeeded", report.Succeeded)
	}
}

// TestFilesChange: a file that changes while it is read stops the job with its name.
func TestFilesChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"shrinks": func(path string) error { return os.Truncate(path, 20) },
		"grows": func(path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.WriteString("more")
			return err
		},
		"is replaced": func(path string) error {
			if err := os.WriteFile(path+".new", []byte(numbered(70)), 0o666); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"is edited in place, time restored": func(path string) error { return editBytes(path, "", "xyz") },
	} {
		for _, file := range []string{"data/0.jsonl", "data/1.jsonl.gz"} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				t.Parallel()
				d := newJobDir(t, mixed(600))
				c := slowJob(d)
				severalFiles.change(d, &c)
				watch(&c, func(event string, passing int, _ orchestrator.Event) {
					if event == "chunk_done" && passing == 1 {
						if err := change(d.join(file)); err != nil {
							t.Error(err)
						}
					}
				})
				_, err := run(t, c)
				wantFault(t, err, fault.Conflict, file, "changed while the job was reading it")
			})
		}
	}
}

// TestLargeFilesChange: of large files, the fingerprint has samples only. What a job has read of
// plain lines is compared byte by byte. A table that may have changed is reported.
func TestLargeFilesChange(t *testing.T) {
	t.Parallel()
	const n = 80000
	lines := numbered(n)
	table := "id\n" + strings.NewReplacer(`{"id":`, "", "}", "").Replace(lines)
	edit := func(path string) error { return editBytes(path, "22222", "xxxxx") }
	for _, one := range []struct {
		name, file string
		change     func(path string) error
		fault      bool
		notices    int
	}{
		{"edited", "a.jsonl", edit, true, 0},
		{"linked", "a.jsonl", harmless["linked"], false, 0},
		{"edited", "b.csv", edit, false, 1},
		{"linked", "b.csv", harmless["linked"], false, 1},
	} {
		t.Run(one.file+" "+one.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, "")
			d.write("a.jsonl", lines+lines)
			d.write("b.csv", table)
			c := slowJob(d)
			c.Input.Path, c.Input.Paths = "both", []string{d.join("a.jsonl"), d.join("b.csv")}
			c.Batching.Size = 2000
			_, notices, err := disturbed(t, c, func() {
				if err := one.change(d.join(one.file)); err != nil {
					t.Error(err)
				}
			})
			if one.fault {
				wantFault(t, err, fault.Conflict, one.file, "changed while the job was reading it")
			} else if all := strings.Join(notices, "\n"); err != nil || strings.Count(all, one.file+" may have changed") != one.notices || strings.Count(all, "/"+one.file) != one.notices {
				t.Errorf("error %v, notices %q", err, all)
			}
		})
	}
}

// TestManyFiles: 2,000 files are one input, and job.json stays small.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const files = 2000
	d := newJobDir(t, "")
	if err := os.Mkdir(d.join("data"), 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		d.write(fmt.Sprintf("data/%05d.jsonl", i), fmt.Sprintf("{\"id\":%d}\n", i))
	}
	c := d.config("test-work")
	c.Input.Path = d.join("data")
	mustRun(t, d, c)
	if got := strings.Count(d.read("out.jsonl"), "\n"); got != files {
		t.Errorf("%d records", got)
	}
	if size := len(d.read("out.jsonl.gpurun/job.json")); size > 250*files {
		t.Errorf("job.json has %d bytes", size)
	}
}
