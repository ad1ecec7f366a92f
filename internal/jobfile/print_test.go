package jobfile_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// printed returns a file as Print writes it, without its steps.
func printed(t *testing.T, file *jobfile.File) string {
	t.Helper()
	lines := []jobfile.Line{{Text: "retries: 5", Off: true}}
	for _, s := range settings {
		if v, ok := file.Values[s.Name]; ok && s.Kind != spec.Steps {
			lines = append(lines, jobfile.Line{Group: s.Group, Text: jobfile.Pair(s.Name, s.Kind, v), Comment: "a comment"})
		}
	}
	if len(lines) == 1 {
		lines = append(lines, jobfile.Line{Text: "kernel: none"})
	}
	var b strings.Builder
	if err := jobfile.Print(&b, []string{"a header"}, lines); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	err := jobfile.Print(&b, []string{"A job."}, []jobfile.Line{
		{Group: "Input", Text: "input: a.jsonl", Comment: "argument"},
		{Group: "Input", Text: "limit: 0", Comment: "default", Off: true},
		{Group: "Kernel", Text: "kernel: " + strings.Repeat("x", 60), Comment: "job.yaml:3"},
		{Group: "Kernel", Text: "steps:"},
	})
	want := `# A job.

# Input
input: a.jsonl  # argument
# limit: 0      # default

# Kernel
kernel: ` + strings.Repeat("x", 60) + `  # job.yaml:3
steps:
`
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestQuote: a quoted text is read as the same text.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"out.jsonl": "out.jsonl", "../a/b-c.py": "../a/b-c.py", "30s": "30s", "32MiB": "32MiB", "": `""`, "-": `"-"`, "0-3": `"0-3"`,
		"true": `"true"`, "No": `"No"`, "a: b": `"a: b"`, "a #b": `"a #b"`, "12": `"12"`, "1e3": "1e3", "fail=5%": `"fail=5%"`,
		"exec:sed s/a/b/": `"exec:sed s/a/b/"`, "ü\n\t\"\\": `"ü\n\t\"\\"`, "~": `"~"`, "\u2028": "\"\\u2028\"", "*a": `"*a"`, "<b>": `"<b>"`,
	} {
		if got := jobfile.Quote(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		file, err := parse([]byte("output: " + jobfile.Quote(text)))
		if err != nil || file.Values["output"].Texts[0] != text {
			t.Errorf("%q is read as %+v, %v", text, file, err)
		}
	}
}

func TestSpacedJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b" : [1,2 ,{"c:d":"e,\"f:\\"}],"g":""}`: `{"a": 1, "b": [1, 2, {"c:d": "e,\"f:\\"}], "g": ""}`,
		"[\n\t1\r\n]": "[1]", "{}": "{}",
	} {
		got := string(jobfile.SpacedJSON([]byte(text)))
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		file, err := parse([]byte("kernel-config: " + got))
		if err != nil || string(file.Values["kernel-config"].JSON) != want {
			t.Errorf("%s is read as %+v, %v", got, file, err)
		}
	}
}
