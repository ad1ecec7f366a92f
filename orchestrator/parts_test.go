package orchestrator_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// concatenated returns the concatenated parts of the folder out, and checks the
// manifest against them.
func concatenated(d jobDir) string {
	d.t.Helper()
	return partsText(d.t, d.join("out"))
}

// decoded returns the lines of an encoded output.
func decoded(t *testing.T, format, data string) string {
	t.Helper()
	f, err := encode.ByName(format)
	if err == nil && !f.Encodes() {
		return data
	}
	var lines []byte
	if err == nil {
		var in io.ReadCloser
		if in, err = f.Codec.Decode(strings.NewReader(data)); err == nil {
			defer in.Close()
			lines, err = io.ReadAll(in)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(lines)
}

func partsText(t *testing.T, dir string) string {
	t.Helper()
	m, err := commit.ReadManifest(dir)
	if err == nil {
		err = m.Check(t.Context(), dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	next := m.Parts[0].First
	for _, p := range m.Parts {
		data, err := os.ReadFile(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		text := decoded(t, m.Encoding, string(data))
		if p.First != next || p.Lines != int64(strings.Count(text, "\n")) {
			t.Errorf("part %+v begins at record %d and has %d lines", p, next, strings.Count(text, "\n"))
		}
		next += p.Records
		all.WriteString(text)
	}
	if next-m.Parts[0].First != m.Records || m.Records != m.Succeeded+m.Failed+m.Dropped {
		t.Errorf("the manifest does not add up: %+v", m)
	}
	return all.String()
}

// outputText returns what a job wrote, in parts or not.
func outputText(t *testing.T, c orchestrator.Config) string {
	t.Helper()
	if strings.HasSuffix(c.Output.Path, "/") {
		return partsText(t, c.Output.Path)
	}
	data, err := os.ReadFile(c.Output.Path)
	if err != nil {
		t.Fatal(err)
	}
	format, err := encode.Choose(c.Output.Path, c.Output.Format)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, format.Name, string(data))
}

// TestPartsAreTheOutput: the output in parts equals that in one file, and where it is
// cut does not depend on which worker computed what.
func TestPartsAreTheOutput(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, mixed(900))
	whole := d.config("test-work")
	whole.Batching.Size, whole.Batching.ChunksPerGPU = 8, 10
	mustRun(t, d, whole)

	c := whole
	c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 5000
	mustRun(t, d, c)
	if concatenated(d) != d.read("out.jsonl") {
		t.Error("the parts are not the output")
	}
	first := tree(d.join("out"))
	if len(first) < 5 {
		t.Errorf("parts: %v", first)
	}
	once := outputFiles(d, c)
	c.Output.Force, c.Kernel.Config = true, []byte(`{"Milliseconds":3,"Slow":7}`)
	mustRun(t, d, c)
	if diff := differences(once, outputFiles(d, c)); diff != "" {
		t.Errorf("another run gives other parts: %s", diff)
	}
	if left, _ := filepath.Glob(d.join("out*")); len(left) != 5 { // out, out.gpurun, out.manifest.json, out.jsonl, out.jsonl.gpurun
		t.Errorf("left: %v", left)
	}
}

// TestPartsFromStream: a stream can be written in parts too.
func TestPartsFromStream(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, "")
	in := numbered(1000)
	mustRun(t, d, orchestrator.Config{
		Input: orchestrator.Input{Path: "-", Stdin: strings.NewReader(in), ChunkRecords: 50}, Output: orchestrator.Output{Path: d.join("out") + "/", PartBytes: 1000}, Kernel: orchestrator.Kernel{Name: "echo"}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
		Batching: orchestrator.Batching{Size: 10},
	})
	if concatenated(d) != in {
		t.Error("the parts are not the output")
	}
}

// TestPartFolderIsRefused: files that gpurun did not write are not replaced, and files
// that would be lost with the folder are not put there.
func TestPartFolderIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(d jobDir, c *orchestrator.Config)
		kind   fault.Kind
		texts  []string
	}{
		{"exists", func(_ jobDir, c *orchestrator.Config) { c.Resume.Fresh = true }, fault.Usage, []string{"already exists", "[output-exists ]"}},
		{"not ours", func(d jobDir, c *orchestrator.Config) {
			c.Output.Force = true
			appendTo(d, "out/notes.txt", "mine")
		}, fault.Usage, []string{"notes.txt", "move it away"}},
		{"without a manifest", func(d jobDir, c *orchestrator.Config) {
			c.Output.Force = true
			_ = os.Remove(d.join("out.manifest.json"))
		}, fault.Usage, []string{"no manifest"}},
		{"without the slash", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path = strings.TrimSuffix(c.Output.Path, "/")
		}, fault.Usage, []string{"is a folder", "out/ for the output in parts"}},
		{"a file", func(d jobDir, c *orchestrator.Config) {
			appendTo(d, "file", "mine")
			c.Output.Path = d.join("file") + "/"
		}, fault.Usage, []string{"not a directory"}},
		{"input inside", func(d jobDir, c *orchestrator.Config) {
			c.Input.Path, c.Output.Force = d.join("out/part-00000.jsonl"), true
		}, fault.Usage, []string{"is in the output folder"}},
		{"errors inside", func(d jobDir, c *orchestrator.Config) {
			c.Output.Errors, c.Output.Force = d.join("out/errors.jsonl"), true
		}, fault.Usage, []string{"is in the output folder"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(20))
			c := d.config("echo")
			c.Output.Path = d.join("out") + "/"
			mustRun(t, d, c)
			test.change(d, &c)
			before := tree(d.path)
			_, err := run(t, c)
			wantFault(t, err, test.kind, test.texts...)
			if diff := differences(before, tree(d.path)); diff != "" {
				t.Errorf("something changed: %s", diff)
			}
		})
	}
}

// TestPartFolderIsFilledMeanwhile: another program puts a file into the old folder
// while the job runs. The file stays, and the same command finishes the job once it is
// moved.
func TestPartFolderIsFilledMeanwhile(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(40))
	c := d.config("test-slow")
	c.Output.Path = d.join("out") + "/"
	c.Input.Limit = 20
	mustRun(t, d, c)
	c.Output.Force, c.Batching.Size, c.Input.Limit = true, 10, 0
	watched := c
	watch(&watched, func(name string, passing int, _ orchestrator.Event) {
		if name == "chunk_done" && passing == 1 {
			appendTo(d, "out/notes.txt", "mine")
		}
	})
	_, err := run(t, watched)
	wantFault(t, err, fault.Conflict, "notes.txt", "move it away")
	if err := os.Remove(d.join("out/notes.txt")); err != nil {
		t.Fatal(err)
	}
	if report := mustRun(t, d, c); report.Resumed != 40 || concatenated(d) != numbered(40) {
		t.Errorf("report: %+v", report)
	}
}

// TestRetryOfParts: only the parts with failed records are rewritten; a modified part
// is refused; and a kill at any point leaves the old or the new output.
func TestRetryOfParts(t *testing.T) {
	t.Parallel()
	in := numbered(300) + `{"id":300,"do":"fail"}` + "\n" + numbered(300)
	prepare := func(t *testing.T) (jobDir, orchestrator.Config) {
		d := newJobDir(t, in)
		c := d.config("test-mending")
		c.Output.Path, c.Output.PartBytes, c.Batching.Size = d.join("out")+"/", 800, 10
		mustRun(t, d, c)
		return d, orchestrator.Config{Output: orchestrator.Output{Path: d.join("out")}, Devices: orchestrator.Devices{GPUs: "cpu:2"}, Kernel: orchestrator.Kernel{Config: []byte(`{"Repaired":true}`)}}
	}
	t.Run("untouched parts stay", func(t *testing.T) {
		t.Parallel()
		d, again := prepare(t)
		before := make(map[string]os.FileInfo)
		for _, name := range tree(d.join("out")) {
			before[name], _ = os.Stat(d.join("out/" + name))
		}
		report, err := orchestrator.Retry(context.Background(), again)
		if err != nil || report.Failed != 0 || concatenated(d) != in {
			t.Fatalf("%v, report %+v", err, report)
		}
		rewritten := 0
		for name, info := range before {
			if now, err := os.Stat(d.join("out/" + name)); err != nil || !os.SameFile(info, now) {
				rewritten++
			}
		}
		if rewritten != 1 {
			t.Errorf("%d of %d files were rewritten", rewritten, len(before))
		}
		for _, name := range tree(d.join("out.gpurun")) {
			if strings.Contains(name, "next") || strings.Contains(name, "retry") {
				t.Errorf("left: %s", name)
			}
		}
		if status, err := orchestrator.Inspect(d.join("out")+"/", ""); err != nil || status.State != orchestrator.Done || status.Report.Failed != 0 {
			t.Errorf("%v, status %+v", err, status)
		}
	})
	for name, change := range map[string]func(d jobDir){
		"part changed": func(d jobDir) {
			edit(t, d.join("out/part-00001.jsonl"), func(data []byte) []byte { data[3] ^= 1; return data })
		},
		"part longer":   func(d jobDir) { appendTo(d, "out/part-00001.jsonl", "{}\n") },
		"part gone":     func(d jobDir) { _ = os.Remove(d.join("out/part-00002.jsonl")) },
		"part too many": func(d jobDir) { appendTo(d, "out/part-00099.jsonl", "{}\n") },
		"no manifest":   func(d jobDir) { _ = os.Remove(d.join("out.manifest.json")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, again := prepare(t)
			change(d)
			before := tree(d.join("out"))
			_, err := orchestrator.Retry(context.Background(), again)
			wantFault(t, err, fault.Conflict, "was changed since the job wrote it")
			if diff := differences(before, tree(d.join("out"))); diff != "" {
				t.Errorf("something changed: %s", diff)
			}
		})
	}
}
