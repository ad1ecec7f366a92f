package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// numbered returns n records {"id":0} …
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":%d}\n", i)
	}
	return b.String()
}

// jobDir is a folder with an input in it.
type jobDir struct {
	t    *testing.T
	path string
}

func newJobDir(t *testing.T, input string) jobDir {
	t.Helper()
	d := jobDir{t: t, path: t.TempDir()}
	if err := os.WriteFile(d.join("in.jsonl"), []byte(input), 0o666); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d jobDir) join(name string) string { return filepath.Join(d.path, name) }

func (d jobDir) config(kernel string) orchestrator.Config {
	return orchestrator.Config{
		Input: orchestrator.Input{Path: d.join("in.jsonl")}, Output: orchestrator.Output{Path: d.join("out.jsonl")}, Kernel: orchestrator.Kernel{Name: kernel}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
	}
}

func (d jobDir) read(name string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.join(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

// logs returns all workers' logs, for a failing test.
func (d jobDir) logs() string {
	var all bytes.Buffer
	paths, _ := filepath.Glob(d.join("*.gpurun/logs/*"))
	for _, path := range paths {
		data, _ := os.ReadFile(path)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(path), data)
	}
	return all.String()
}

// run runs the job and checks what holds for every job.
func run(t *testing.T, config orchestrator.Config) (orchestrator.Report, error) {
	t.Helper()
	return runContext(t, context.Background(), config)
}

func runContext(t *testing.T, ctx context.Context, config orchestrator.Config) (orchestrator.Report, error) {
	t.Helper()
	report, err := orchestrator.Run(ctx, config)
	checkReport(t, report, err)
	return report, err
}

// checkReport checks invariant 1 on a report.
func checkReport(t *testing.T, r orchestrator.Report, err error) {
	t.Helper()
	if r.In != r.Succeeded+r.Failed+r.Dropped+r.Pending {
		t.Errorf("counts do not add up: %+v", r)
	}
	if r.Pending < 0 || err == nil && (r.Pending != 0 || r.Uncounted) {
		t.Errorf("pending = %d, uncounted %t with error %v", r.Pending, r.Uncounted, err)
	}
	var byKind int64
	for _, f := range r.Failures {
		byKind += f.Count
	}
	if byKind != r.Failed {
		t.Errorf("failures by kind are %d, failed records %d", byKind, r.Failed)
	}
}

func mustRun(t *testing.T, d jobDir, config orchestrator.Config) orchestrator.Report {
	t.Helper()
	report, err := run(t, config)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, d.logs())
	}
	return report
}

// wantFault checks the kind and the text of an error.
func wantFault(t *testing.T, err error, kind fault.Kind, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want kind %s", kind)
	}
	if got := fault.KindOf(err); got != kind {
		t.Errorf("kind %s, want %s: %v", got, kind, err)
	}
	full := err.Error()
	if e := fault.As(err); e != nil {
		full += fmt.Sprintf(" [%s %s]\n%s", e.Code, e.Value, e.Detail)
	}
	for _, text := range texts {
		if !strings.Contains(full, text) {
			t.Errorf("error lacks %q: %s", text, full)
		}
	}
}

// marks returns the kind of failure of every output line, "" for a good one.
func marks(t *testing.T, output string) []string {
	t.Helper()
	var kinds []string
	for line := range strings.Lines(output) {
		var record struct {
			Error *struct{ Kind, Message string } `json:"_error"`
		}
		if !strings.HasPrefix(line, "{") {
			kinds = append(kinds, "")
			continue
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("output line %q: %v", line, err)
		}
		kind := ""
		if record.Error != nil {
			kind = record.Error.Kind
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// differences returns where two values differ, "" if nowhere. go-cmp would take a tenth of the time that
// each of the processes takes to start.
func differences(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	wanted, lines := linesOf(want), linesOf(got)
	var b strings.Builder
	for i := range max(len(wanted), len(lines)) {
		switch {
		case i >= len(wanted):
			fmt.Fprintf(&b, "\n%d +%.500s", i+1, lines[i])
		case i >= len(lines):
			fmt.Fprintf(&b, "\n%d -%.500s", i+1, wanted[i])
		case wanted[i] != lines[i]:
			fmt.Fprintf(&b, "\n%d -%.500s\n%d +%.500s", i+1, wanted[i], i+1, lines[i])
		}
		if b.Len() > 4000 {
			return "(-want +got)" + b.String() + "\n…"
		}
	}
	return fmt.Sprintf("(-want +got)%s\nwant a %T, got a %T", &b, want, got)
}

// linesOf writes a value in lines, each line of a file for itself.
func linesOf(value any) (lines []string) {
	switch value := value.(type) {
	case string:
		return strings.Split(value, "\n")
	case map[string]string:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			for _, line := range strings.Split(value[name], "\n") {
				lines = append(lines, name+": "+line)
			}
		}
		return lines
	}
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return []string{fmt.Sprintf("%#v", value)}
	}
	return strings.Split(string(data), "\n")
}
