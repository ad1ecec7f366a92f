package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/jobfile"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// samples returns three values of a setting, as a flag takes them.
func samples(s spec.Setting) [3]string {
	switch {
	case s.OneOf():
		return [3]string{s.Words[0], s.Words[min(1, len(s.Words)-1)], s.Words[len(s.Words)-1]}
	case s.Kind == spec.Bool:
		return [3]string{"true", "false", "true"}
	case s.Kind == spec.Int:
		return [3]string{"5", "6", "7"}
	case s.Kind == spec.Duration:
		return [3]string{"5m0s", "6m0s", "7m0s"}
	case s.Kind == spec.Size:
		return [3]string{"5MiB", "6MiB", "7GiB"}
	case s.Kind == spec.Document:
		return [3]string{`{"a": 1}`, `{"a": 2}`, `[3]`}
	}
	switch s.Name {
	case "halt":
		return [3]string{"fail=1", "fail=5%", "never"}
	case "fetch", "column":
		return [3]string{"a=one", "a=/two", "a=th:ree"}
	}
	return [3]string{"one", "/two", "th:ree"}
}

// settled reads settings as gpurun run does.
func settled(t *testing.T, args ...string) (*jobCommand, []string) {
	t.Helper()
	cmd := &cobra.Command{Use: "run", Args: cobra.ArbitraryArgs}
	j := newJobCommand(cmd, nil)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	inputs, err := j.readSettings(cmd, cmd.Flags().Args(), inputSetting)
	if err != nil {
		t.Fatal(err)
	}
	return j, inputs
}

// writeJobFile writes a job file to a folder that becomes the current one.
func writeJobFile(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("job.yaml", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestPrecedence: of each setting, a flag wins over its variable, that over the job file.
func TestPrecedence(t *testing.T) {
	for _, s := range jobSettings {
		if s.Place != spec.Anywhere {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			values := samples(s)
			writeJobFile(t, jobfile.Pair(s.Name, s.Kind, jobfile.Value{Texts: values[:1]}))
			args := []string{"-f", "job.yaml"}
			want := func(value, from string) {
				t.Helper()
				j, _ := settled(t, args...)
				if got := textOf(j.flags, s.Name); got != value {
					t.Errorf("%s, want %s", got, value)
				}
				if got := j.origins[s.Name].String(); !strings.HasPrefix(got, from) {
					t.Errorf("set by %s, want %s", got, from)
				}
			}
			want(values[0], "job.yaml:")
			variable := prefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
			t.Setenv(variable, values[1])
			want(values[1], variable)
			args = append(args, "--"+s.Name+"="+values[2])
			want(values[2], "--"+s.Name)
		})
	}
}

// TestPrintedJobFile: what plan prints sets every setting to the same value again, in any
// folder.
func TestPrintedJobFile(t *testing.T) {
	var text strings.Builder
	inFile := 0
	for _, s := range jobSettings {
		if s.Place == spec.NotInFile {
			continue
		}
		inFile++
		v := jobfile.Value{Texts: []string{samples(s)[2]}}
		switch {
		case s.Name == dirSetting || s.Name == "kernel" || s.Name == "kernel-config":
			continue
		case s.Kind == spec.Steps:
			text.WriteString("steps:\n- a.py\n- kernel: b.py\n  config: {c: [1, d]}\n- kernel: c.py\n  config: c.json\n")
			continue
		case s.IsList():
			v = jobfile.Value{IsList: true, Texts: []string{"a=a", "b, c=d", "-=e"}}
		}
		fmt.Fprintln(&text, jobfile.Pair(s.Name, s.Kind, v))
	}
	writeJobFile(t, text.String())
	print := func(name string) (string, *jobfile.File) {
		t.Helper()
		j, args := settled(t, "-f", name)
		var b bytes.Buffer
		if err := printJobFile(&b, j, args); err != nil {
			t.Fatal(err)
		}
		file, err := jobfile.Parse("printed.yaml", b.Bytes(), jobSettings, checkSetting)
		if err != nil {
			t.Fatalf("%v\n%s", err, &b)
		}
		return b.String(), file
	}
	first, printed := print("job.yaml")
	if len(printed.Values) != inFile-2 { // without kernel and kernel-config
		t.Errorf("%d of %d settings are printed:\n%s", len(printed.Values), inFile, first)
	}
	elsewhere := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(elsewhere, []byte(first), 0o666); err != nil {
		t.Fatal(err)
	}
	ignoreLines := cmpopts.IgnoreFields(jobfile.Value{}, "Line")
	second, again := print(elsewhere)
	if diff := cmp.Diff(printed.Values, again.Values, ignoreLines, cmpopts.IgnoreFields(jobfile.Step{}, "Line")); diff != "" {
		t.Errorf("%s\n%s", diff, second)
	}
	t.Chdir("/")
	if _, again = print(elsewhere); cmp.Diff(printed.Values, again.Values, ignoreLines, cmpopts.IgnoreFields(jobfile.Step{}, "Line")) != "" {
		t.Error("another folder gives other settings")
	}
}
