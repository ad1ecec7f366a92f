package resolve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

func TestResolvePython(t *testing.T) {
	dir, installed := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(dir, "embed.py"), filepath.Join(installed, "embed.py"), filepath.Join(installed, "other.py")} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	options := PythonOptions{Interpreter: "python3.12", IOWorkers: 2, NaN: "error"}
	resolver := Resolver{Builtins: []string{"python"}, Self: "/bin/gpurun", SelfArgs: []string{"gpurun-kernel"}, Dir: dir, SearchPath: installed, Python: options}
	for name, file := range map[string]string{
		"embed.py":                     filepath.Join(dir, "embed.py"), // takes precedence over the installed one
		"./embed.py":                   filepath.Join(dir, "embed.py"),
		"other.py":                     filepath.Join(installed, "other.py"),
		filepath.Join(dir, "embed.py"): filepath.Join(dir, "embed.py"),
	} {
		named, err := resolver.Resolve(name, plugins.Config(` {"a":1} `))
		if err != nil {
			t.Fatal(err)
		}
		var got PythonConfig
		want := PythonConfig{PythonOptions: options, File: file, Config: json.RawMessage(`{"a":1}`)}
		if err := named.Config.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if named.Path != "/bin/gpurun" || !reflect.DeepEqual(named.Args, []string{"gpurun-kernel", "python"}) || !reflect.DeepEqual(named.Files, []string{file}) {
			t.Errorf("%s: %+v", name, named)
		}
	}
	for name, want := range map[string]string{"nope.py": "nope.py: no such file", "./other.py": "no such file", "folder.py": "is a folder",
		"embd.py": "did you mean embed.py?", "./enbed.py": "did you mean ./embed.py?", filepath.Join(dir, "embe.py"): "did you mean " + filepath.Join(dir, "embed.py")} {
		if _, err := resolver.Resolve(name, nil); fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesOfPythonKernels(t *testing.T) {
	for name, want := range map[string][2]string{
		"embed.py":            {"embed.py", ""},
		"embed.py:run":        {"embed.py", "run"},
		"a.py:b/embed.py:Run": {"a.py:b/embed.py", "Run"},
		"embed.py:":           {"embed.py", ""},
	} {
		if file, function, ok := CutPython(name); !ok || file != want[0] || function != want[1] {
			t.Errorf("%s: %q, %q, %v", name, file, function, ok)
		}
	}
	for _, name := range []string{"exec:python3 score.py", "exec:python3 score.py:x", "echo", "./kernel", "a.py:b/kernel", "docker:image"} {
		if _, _, ok := CutPython(name); ok {
			t.Errorf("%s is taken for a Python kernel", name)
		}
	}
}

func TestResolvePythonFunction(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "embed.py")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	resolver := Resolver{Builtins: []string{"python", "exec", "chain"}, Dir: dir}
	named, err := resolver.Resolve("embed.py:run → embed.py:Other", nil)
	var got PythonConfig
	want := PythonConfig{File: file, Function: "run", Name: "embed.py:run", Then: []PythonStep{{Name: "embed.py:Other", File: file, Function: "Other"}}}
	if err != nil || named.Config.Decode(&got) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if named, err = resolver.Resolve("exec:python3 embed.py → embed.py:run", nil); err != nil || named.Args[len(named.Args)-1] != "chain" {
		t.Errorf("a program and a file share a process: %+v, %v", named, err)
	}
	for name, want := range map[string]string{
		"embed.py:":   "names no function after the colon: write embed.py, or embed.py:function",
		"embd.py:run": "kernel embd.py: ",
	} {
		if _, err := resolver.Resolve(name, nil); fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
