package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// every returns each kind of result, chosen by the record's text, with several batches
// in flight.
type every struct{ plugins.Base }

func (every) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: 3, Inputs: []string{"text"}}, nil
}

func (every) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	n := batch.Len()
	vectors, doubles, flags := make([]float32, 100*n), make([]float64, n), make([]bool, n)
	names, values := make([]string, n), make([][]byte, n)
	for i := range n {
		text, err := batch.Text(nil, i, "text")
		size := len(batch.Record(i))
		vectors[100*i], doubles[i], flags[i] = float32(size)/7, float64(size)/7, size%2 == 0
		names[i], values[i] = string(text)+"\t\u00e9", fmt.Appendf(nil, `{"size":[%d]}`, size)
		switch word, _, _ := strings.Cut(string(text), " "); {
		case err != nil:
			results.Fail(i, err.Error())
		case word == "drop":
			results.Drop(i)
		case word == "fail":
			results.Fail(i, "rejected: "+string(text[:10]))
		case word == "same":
			results.Unchanged(i)
		case word == "itself":
			results.Line(i, batch.Record(i))
		case word == "two":
			results.Lines(i, []byte(`{"one":1}`), batch.Record(i), []byte(`{"two":2}`))
		case word == "large":
			results.Line(i, fmt.Appendf(nil, "%q", strings.Repeat("x", 300_000)))
		case word == "invalid":
			results.Line(i, []byte(`{"a":`))
		case word == "error":
			return fmt.Errorf("cannot compute this")
		case word == "exit":
			os.Exit(7)
		case word == "write":
			batch.Record(i)[0] = 'X'
		}
	}
	results.Column(plugins.Float32s("vector", 100, vectors))
	results.Column(plugins.Float64s("double", 0, doubles))
	results.Column(plugins.Bools("flag", flags))
	results.Column(plugins.Strings("name", names))
	results.Column(plugins.JSON("json", values))
	return nil
}

// everyInput returns lines of every kind; some of the records kill the kernel.
func everyInput() string {
	var b strings.Builder
	b.WriteString("\xEF\xBB\xBF")
	words := strings.Fields("drop fail same itself two large invalid column other column more")
	for i := range 600 {
		word := words[i%len(words)]
		switch i {
		case 100:
			word = "error"
		case 300:
			word = "exit"
		}
		end := "\n"
		if i%5 == 0 {
			end = "\r\n"
		}
		fmt.Fprintf(&b, "{\"id\":%d,\"text\":\"%s %d %s\"}%s", i, word, i, strings.Repeat("lorem ", i%200), end)
		switch {
		case i%50 == 0:
			b.WriteString("no JSON\n\n \t\r\n[1]\n")
		case i%70 == 0:
			fmt.Fprintf(&b, "{\"id\":\"long\",\"text\":%q}\n{\"_error\":{},\"text\":\"same upstream\"}\n", strings.Repeat("long ", 20_000))
		case i == 333:
			fmt.Fprintf(&b, "{\"id\":\"too long\",\"text\":%q}\n", strings.Repeat("x", 300_000))
		}
	}
	b.WriteString(`{"id":"last","text":"column without a newline"}`)
	return b.String()
}

// TestInlineIsTheSame: a job's output does not depend on how records reach the kernel.
func TestInlineIsTheSame(t *testing.T) {
	input := everyInput()
	var outputs, failures []string
	for _, inline := range []string{"", "1"} {
		t.Setenv("GPURUN_INLINE", inline)
		d := newJobDir(t, input)
		c := d.config("test-every")
		c.Batching.Size, c.Input.MaxRecordBytes = 32, 200_000
		report := mustRun(t, d, c)
		if report.Failed == 0 || report.Dropped == 0 || report.Succeeded == 0 {
			t.Errorf("report: %+v", report)
		}
		outputs = append(outputs, d.read("out.jsonl"))
		failures = append(failures, strings.Join(marks(t, d.read("out.jsonl")), ","))
	}
	if outputs[0] != outputs[1] {
		t.Errorf("it differs: %s", differences(strings.Split(outputs[0], "\n"), strings.Split(outputs[1], "\n")))
	}
	if n := strings.Count(failures[0], "crash"); n != 1 {
		t.Errorf("%d crashes", n)
	}
}

// TestKernelWritesToRecords: a kernel that writes to records damages only those.
func TestKernelWritesToRecords(t *testing.T) {
	t.Parallel()
	lines := slices.Collect(strings.Lines(numbered(300)))
	want := make([]string, len(lines))
	for i := range lines {
		lines[i] = fmt.Sprintf("{\"id\":%d,\"text\":\"same\"}\n", i)
		if i == 7 || i == 150 || i == 299 {
			lines[i] = fmt.Sprintf("{\"id\":%d,\"text\":\"write\"}\n", i)
			want[i] = "crash"
		}
	}
	d := newJobDir(t, strings.Join(lines, ""))
	c := d.config("test-every")
	c.Batching.Size = 64
	report := mustRun(t, d, c)
	output := d.read("out.jsonl")
	if diff := differences(want, marks(t, output)); diff != "" || report.Failed != 3 {
		t.Errorf("failed %d: %s", report.Failed, diff)
	}
	for i, line := range strings.SplitAfter(strings.TrimSuffix(output, "\n"), "\n") {
		if want[i] == "" && strings.TrimSuffix(line, "\n") != strings.TrimSuffix(lines[i], "\n") ||
			want[i] != "" && !strings.HasPrefix(line, strings.TrimSuffix(lines[i], "}\n")) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	if failures := d.read("out.jsonl.gpurun/failures.jsonl"); strings.Count(failures, "the kernel wrote to a record") != 3 {
		t.Errorf("failures: %s", failures)
	}
}

// TestArenaIsNotForPrograms: a program that an exec: kernel runs does not see the
// arena, and a job that such a program starts does not use it.
func TestArenaIsNotForPrograms(t *testing.T) {
	t.Setenv("GPURUN_ARENA", "3")
	d := newJobDir(t, numbered(20))
	script := `while read -r line; do
		printf '{"shared":%d,"variable":"%s"}\n' "$(ls -l /proc/$$/fd | grep -c memfd)" "$GPURUN_ARENA"
	done`
	if err := os.WriteFile(d.join("look.sh"), []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	report := mustRun(t, d, d.config("exec:sh "+filepath.Join(d.path, "look.sh")))
	if report.Succeeded != 20 {
		t.Fatalf("report: %+v\n%s", report, d.read("out.jsonl"))
	}
	for line := range strings.Lines(d.read("out.jsonl")) {
		var seen struct {
			Shared   *int
			Variable *string
		}
		if err := json.Unmarshal([]byte(line), &seen); err != nil || seen.Shared == nil || *seen.Shared != 0 || *seen.Variable != "" {
			t.Fatalf("it sees %s", line)
		}
	}
}
