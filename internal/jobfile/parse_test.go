package jobfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// settings are one of each kind.
var settings = []spec.Setting{
	{Name: "input", Group: "Input", Kind: spec.Repeated},
	{Name: "output", Group: "Output"},
	{Name: "kernel", Group: "Kernel"},
	{Name: "kernel-config", Group: "Kernel", Kind: spec.Document},
	{Name: "steps", Group: "Kernel", Kind: spec.Steps, Excludes: []string{"kernel"}},
	{Name: "step", Group: "Kernel", Kind: spec.Repeated, Place: spec.NotInFile, Instead: "steps"},
	{Name: "nan", Group: "Kernel", Words: []string{"null", "error"}},
	{Name: "batch-size", Group: "Batching", Kind: spec.Int, Least: 1, Words: []string{"auto"}},
	{Name: "retries", Group: "Failures", Kind: spec.Int},
	{Name: "batch-bytes", Group: "Batching", Kind: spec.Size, Default: "32MiB"},
	{Name: "max-time", Group: "Resume", Kind: spec.Duration},
	{Name: "force", Group: "Output", Kind: spec.Bool},
	{Name: "stagger", Group: "Devices", Kind: spec.Bool, Words: []string{"auto"}},
	{Name: "keep", Group: "Output", Kind: spec.List},
}

// parse parses with checks of the settings, and one more.
func parse(data []byte) (*jobfile.File, error) {
	return jobfile.Parse("job.yaml", data, settings, func(s spec.Setting, text string) error {
		if s.Name == "retries" && text == "13" {
			return errors.New("13 brings bad luck")
		}
		return s.Check(text)
	})
}

func TestParse(t *testing.T) {
	file, err := parse([]byte("\ufeff" + strings.ReplaceAll(`---
# every kind of value
input: [a.jsonl, 'b c.jsonl', "-"]
output: 2026-11   # not a date
kernel-config: {"model": small, n: 0x10, f: 1.50, list: [1, null, yes, ~], big: 123456789012345678901234567890, "a\tb": "<ü>"}
nan: null
batch-size: auto
retries: 1_000
batch-bytes: 64K
max-time: 0
force: true
stagger: auto
keep: id,url
steps:
- clean.py
- kernel: embed.py
  config:
    a:
      - 1
      - b: |
          two
          lines
- kernel: exec:sed s/a/b/
  config: c.json
`, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]jobfile.Value{
		"input":         {Texts: []string{"a.jsonl", "b c.jsonl", "-"}, IsList: true, Line: 3},
		"output":        {Texts: []string{"2026-11"}, Line: 4},
		"kernel-config": {JSON: []byte(`{"model": "small", "n": 16, "f": 1.50, "list": [1, null, "yes", null], "big": 123456789012345678901234567890, "a\tb": "<ü>"}`), Line: 5},
		"nan":           {Texts: []string{"null"}, Line: 6},
		"batch-size":    {Texts: []string{"auto"}, Line: 7},
		"retries":       {Texts: []string{"1000"}, Line: 8},
		"batch-bytes":   {Texts: []string{"64K"}, Line: 9},
		"max-time":      {Texts: []string{"0s"}, Line: 10},
		"force":         {Texts: []string{"true"}, Line: 11},
		"stagger":       {Texts: []string{"auto"}, Line: 12},
		"keep":          {Texts: []string{"id,url"}, Line: 13},
		"steps": {Line: 14, Steps: []jobfile.Step{
			{Kernel: "clean.py", Line: 15},
			{Kernel: "embed.py", Line: 16, Config: jobfile.Value{Line: 17, JSON: []byte(`{"a": [1, {"b": "two\nlines\n"}]}`)}},
			{Kernel: "exec:sed s/a/b/", Line: 23, Config: jobfile.Value{Line: 24, Texts: []string{"c.json"}}},
		}},
	}
	for name, v := range want {
		if diff := cmp.Diff(v, file.Values[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if len(file.Values) != len(want) {
		t.Errorf("%d values, want %d", len(file.Values), len(want))
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"batchsize: 5":                     `job.yaml:1:1: unknown setting "batchsize"; did you mean batch-size?`,
		"batch_size: 5":                    `did you mean batch-size?`,
		"batchSize: 5":                     `did you mean batch-size?`,
		"\n\n  ouput: x":                   `job.yaml:3:3: unknown setting "ouput"; did you mean output?`,
		"colour: red":                      `job.yaml:1:1: unknown setting "colour"`,
		"step: a.py":                       `a job file has steps instead`,
		"batching:\n  batch-size: 5":       `job.yaml:1:1: batching is a heading, not a setting`,
		"kernel: a\noutput: b\nkernel: c":  "job.yaml:3:1: kernel is set twice, first in line 1",
		"kernel-config: {a: 1, a: 2}":      "job.yaml:1:23: a is set twice, first in line 1",
		"batch-size: many":                 `job.yaml:1:13: batch-size must be a whole number or auto, not many`,
		`batch-size: "128"`:                `must be a whole number or auto, not the text "128"`,
		"batch-size: 1.5":                  "not 1.5",
		"batch-size: 0":                    "batch-size must be at least 1 or auto, not 0",
		"batch-size: [1]":                  "not a list",
		"batch-size:":                      "job.yaml:1:1: batch-size has no value",
		"batch-size: null":                 "batch-size has no value",
		"retries: 13":                      "job.yaml:1:10: 13 brings bad luck",
		"force: yes":                       `force must be true or false, not yes`,
		"force: 1":                         "must be true or false, not 1",
		"stagger: maybe":                   "stagger must be true or false or auto, not maybe",
		"max-time: 30":                     "must be a time with its unit, such as 30s or 5m, not 30",
		"max-time: soon":                   "max-time must be a time with its unit, such as 30s or 5m, not soon",
		"batch-bytes: 1.5":                 "must be a size such as 4096, 64K",
		"nan: nul":                         `nan must be null or error, not nul; did you mean null?`,
		"output: true":                     `output must be text, not true; quote it: "true"`,
		"output: {a: 1}":                   "output must be text, not a mapping",
		"output: -":                        `quote the dash: "-"`,
		"keep: [a, [b]]":                   "job.yaml:1:11: keep must be text, not a list",
		"keep: [a, ]\ninput: [a, {b: c}]":  "job.yaml:2:12: input must be text, not a mapping",
		"kernel-config: 5":                 "must be a mapping, or the name of a JSON file, not 5",
		"kernel-config: {a: .nan}":         "kernel-config: JSON has no .nan",
		"steps: a.py":                      "steps must be a list of kernels",
		"steps: []":                        "steps must be a list of kernels",
		"steps: [a.py, {config: {}}]":      "a step of steps needs a kernel",
		"steps: [a.py, 5, '']":             "a step of steps needs a kernel",
		"steps: [{kernel: a, confg: {}}]":  `unknown setting "confg"; did you mean config?`,
		"steps: [{kernel: a, kernel: b}]":  "kernel is set twice",
		"":                                 "job.yaml:1:1: the file contains no settings",
		"# only a comment":                 "contains no settings",
		"- a\n- b":                         "a job file is a mapping of settings to values, such as batch-size: 256, not a list",
		"just text":                        `not the text "just text"`,
		"kernel: a\n---\nkernel: b":        "a job file has one document",
		"kernel: a\n\toutput: b":           "job.yaml:2:1: a tab indents this line; YAML allows only spaces",
		"steps:\n\t- a\n \t- b":            "job.yaml:3:2: a tab indents this line",
		"kernel: &a x\noutput: *a":         "job.yaml:2:9: aliases (*) are not supported",
		"kernel: !!str x":                  "tags (!) are not supported",
		"<<: {kernel: a}":                  "merge keys (<<) are not supported",
		"%YAML 1.2\n---\nkernel: a":        "directives (%) are not supported",
		"? [a]\n: b":                       "job.yaml:2:1: not valid YAML",
		"? a\n: b":                         "job.yaml:1:1: a key must be a name",
		"kernel: 'a":                       "not valid YAML",
		"kernel: a: b":                     "not valid YAML",
		"kernel: [a":                       "not valid YAML",
		"kernel: \"\x01\"":                 "job.yaml:1:10: the file is not text",
		"kernel: a\noutput: \xff":          "job.yaml:2:9: the file is not text",
		"# " + strings.Repeat("x", 300000): "job.yaml:1:1: the file is larger than 64 KiB",
	} {
		_, err := parse([]byte(text))
		var mistakes jobfile.Mistakes
		if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q:\n%v\nwant %s", text, err, want)
		}
		for _, m := range mistakes {
			if m.File != "job.yaml" || m.Line < 1 || m.Column < 1 {
				t.Errorf("%.80q: a mistake without a place: %+v", text, m)
			}
		}
	}
}

// TestAllMistakes: one run shows every mistake, in the order of the file.
func TestAllMistakes(t *testing.T) {
	_, err := parse([]byte("ouput: x\nbatch-size: many\nkernel: a\nsteps: [{kernl: b}]\nkernel: c\n"))
	const want = `5 mistakes:
  job.yaml:1:1: unknown setting "ouput"; did you mean output?
  job.yaml:2:13: batch-size must be a whole number or auto, not many
  job.yaml:3:1: kernel cannot be combined with steps
  job.yaml:4:10: unknown setting "kernl"; did you mean kernel?
  job.yaml:5:1: kernel is set twice, first in line 3`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestBombs: what exhausts parsers is refused at once.
func TestBombs(t *testing.T) {
	laughs := "a0: &a0 [x, x]\n"
	for i := range 30 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i)
	}
	blocks := ""
	for i := range 500 {
		blocks += strings.Repeat(" ", i) + "a:\n"
	}
	for name, text := range map[string]string{
		"aliases":   laughs,
		"brackets":  "keep: " + strings.Repeat("[", 60_000),
		"braces":    "kernel-config: " + strings.Repeat("{a: ", 15_000),
		"dashes":    strings.Repeat("- ", 30_000) + "a",
		"questions": strings.Repeat("? ", 30_000) + "a",
		"blocks":    blocks,
		"keys":      strings.Repeat("kernel: a\n", 6_000),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse([]byte(text)); err == nil {
				t.Error("no error")
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"input: [a.jsonl, '-']\nkernel: a.py # b\nbatch-size: auto\n", "kernel-config: {a: [1, 2.5, .inf, 0x10, null]}\n",
		"steps:\n- clean.py\n- kernel: embed.py\n  config:\n    a: |\n      b\n", "---\nnan: null\n...\n", "output: >-\n  a\n  b\n",
		"a: &a b\nc: *a\n", "\tkernel: a", "kernel: \"a\\u0041\"\r\nforce: yes", "? a\n: b", "%YAML 1.2\n---\na: b", "keep:\n- a\n-\n- b",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse(data)
		if err != nil {
			var mistakes jobfile.Mistakes
			if !errors.As(err, &mistakes) || len(mistakes) == 0 || file != nil {
				t.Fatalf("%v with %v", file, err)
			}
			return
		}
		// What was read can be printed and read again.
		printed := printed(t, file)
		again, err := parse([]byte(printed))
		if err != nil {
			t.Fatalf("printed as %q: %v", printed, err)
		}
		for name, v := range file.Values {
			if v.Steps != nil {
				continue
			}
			v.Line = again.Values[name].Line
			if diff := cmp.Diff(v, again.Values[name]); diff != "" {
				t.Fatalf("printed as %q: %s", printed, diff)
			}
		}
	})
}
