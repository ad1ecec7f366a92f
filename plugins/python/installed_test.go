package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gpurun/gpurun/plugins"
)

// A kernel that imports gpurun uses the runner's own module. An installed one of another
// version is worth a warning.
func TestInstalledPackage(t *testing.T) {
	needPython(t)
	runner, err := filepath.Abs("runner")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change, source string
		warns          bool
	}{
		"another version": {"Retry = Fail = None\n", "import gpurun\nasync def process(record): raise gpurun.Fail('no')", true},
		"the same":        {"", "import gpurun\nasync def process(record): raise gpurun.Fail('no')", false},
		"not imported":    {"Retry = Fail = None\n", "async def process(record): raise ValueError('no')", false},
	} {
		t.Run(name, func(t *testing.T) {
			installed := t.TempDir()
			if err := os.CopyFS(filepath.Join(installed, "gpurun_runner"), os.DirFS(runner)); err != nil {
				t.Fatal(err)
			}
			if test.change != "" {
				if err := os.WriteFile(filepath.Join(installed, "gpurun_runner", "api.py"), []byte(test.change), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PYTHONPATH", installed+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
			k := start(t, test.source)
			if a := ask(t, k, `{}`); !strings.Contains(show(a), "no") {
				t.Error(show(a))
			}
			warnings := strings.Join(k.(plugins.Reporter).Report().Warnings, "\n")
			if test.warns != strings.Contains(warnings, "("+installed+") is not of the same version as this gpurun") {
				t.Errorf("it warns: %q", warnings)
			}
		})
	}
}

// TestClash: another project called gpurun, with files of the same names, is worth a warning, too.
func TestClash(t *testing.T) {
	needPython(t)
	const imports = "import gpurun\ndef process(batch): return {}"
	for name, test := range map[string]struct {
		record, source string
		warns          bool
	}{
		"the other project": {"gpurun/__init__.py,,\ngpurun/cli.py,,\n", imports, true},
		"without a list":    {"", imports, true},
		"other files":       {"__editable__.gpurun.pth,,\n", imports, false},
		"not imported":      {"gpurun/__init__.py,,\n", "def process(batch): return {}", false},
	} {
		t.Run(name, func(t *testing.T) {
			installed := t.TempDir()
			files := fstest.MapFS{"gpurun-0.1.1.dist-info/METADATA": {Data: []byte("Metadata-Version: 2.4\nName: gpurun\nVersion: 0.1.1\n")}}
			if test.record != "" {
				files["gpurun-0.1.1.dist-info/RECORD"] = &fstest.MapFile{Data: []byte(test.record)}
			}
			if err := os.CopyFS(installed, files); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PYTHONPATH", installed+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
			k := start(t, test.source)
			ask(t, k, `{}`)
			warnings := strings.Join(k.(plugins.Reporter).Report().Warnings, "\n")
			if test.warns != strings.Contains(warnings, "the package gpurun 0.1.1 is installed in this environment, too") {
				t.Errorf("it warns: %q", warnings)
			}
		})
	}
}
