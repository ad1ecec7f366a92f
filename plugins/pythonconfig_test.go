package plugins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
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
		named, err := resolver.Resolve(name, Config(` {"a":1} `))
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
