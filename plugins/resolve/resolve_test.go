package resolve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	write := func(path string, mode os.FileMode) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kernel := write("work/kernel", 0o755)
	write("work/plain", 0o644)
	write("work/embed.py", 0o755)
	odd := write("work/a:b/kernel", 0o755)
	tool := write("installed/tool", 0o755)
	write("installed/echo", 0o755)
	write("installed/data", 0o644)
	write("installed/empty", 0o755)
	if err := os.Symlink(tool, filepath.Join(dir, "installed", "link")); err != nil {
		t.Fatal(err)
	}
	relative := write("work/bin/local", 0o755)
	work := filepath.Join(dir, "work")
	resolver := Resolver{
		Builtins: []string{"echo", "exec"}, Self: "/bin/gpurun", SelfArgs: []string{"gpurun-kernel"},
		SearchPath: strings.Join([]string{"", filepath.Join(dir, "missing"), filepath.Join(dir, "installed"), "bin"}, ":"),
		Dir:        work,
	}
	builtin := func(name string) Named {
		return Named{Path: "/bin/gpurun", Args: []string{"gpurun-kernel", name}, Config: plugins.Config(`{"a":1}`)}
	}
	program := func(path string) Named {
		return Named{Path: path, Config: plugins.Config(`{"a":1}`), Files: []string{path}}
	}
	found := []struct {
		name string
		want Named
	}{
		{"echo", builtin("echo")}, // takes precedence over a file in the search path
		{"./kernel", program(kernel)},
		{"../work/kernel", program(kernel)},
		{kernel, program(kernel)},
		{"a:b/kernel", program(odd)},
		{"tool", program(tool)},
		{"link", program(filepath.Join(dir, "installed", "link"))},
		{"local", program(relative)},
	}
	for _, test := range found {
		t.Run(test.name, func(t *testing.T) {
			got, err := resolver.Resolve(test.name, plugins.Config(`{"a":1}`))
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}

	notFound := []struct {
		name, mode string
		kind       fault.Kind
		says       []string
	}{
		{"", "", fault.Usage, []string{"name one", "available: echo, empty, exec:COMMAND, link, local, tool, files (./kernel)"}},
		{"exho", "", fault.Incompatible, []string{`unknown kernel "exho"`, "did you mean echo?", "Available: echo"}},
		{"tol", "", fault.Incompatible, []string{"did you mean tool?"}},
		{"something", "", fault.Incompatible, []string{`unknown kernel "something".`, "Available: "}},
		{"kernel", "", fault.Incompatible, []string{"to use the file in the current directory, write ./kernel."}},
		{"data", "", fault.Incompatible, []string{"installed/data", "not executable", "chmod +x"}},
		{"./missing", "", fault.Incompatible, []string{"kernel ./missing", "no such file"}},
		{"./kernl", "", fault.Incompatible, []string{"did you mean ./kernel?"}},
		{"./plain", "", fault.Incompatible, []string{"not executable", "chmod +x"}},
		{"./", "", fault.Incompatible, []string{"is a folder", "go build"}},
		{work, "", fault.Incompatible, []string{"is a folder"}},
		{"embed.py", "", fault.Incompatible, []string{"no python kernel built in"}},
		{"docker:image", "", fault.Incompatible, []string{`unknown kernel scheme "docker:"`, "exec:"}},
		{"exec:", "", fault.Usage, []string{"has no command"}},
		{"exec:  ", "", fault.Usage, []string{"has no command"}},
		{"echo", "batch", fault.Usage, []string{"exec mode", `"echo"`}},
	}
	for _, test := range notFound {
		t.Run("no "+test.name, func(t *testing.T) {
			resolver := resolver
			resolver.Exec.Mode = test.mode
			_, err := resolver.Resolve(test.name, nil)
			if fault.KindOf(err) != test.kind {
				t.Fatalf("kind %s: %v", fault.KindOf(err), err)
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("no %q in: %v", word, err)
				}
			}
		})
	}
}

func TestResolveExec(t *testing.T) {
	resolver := Resolver{Builtins: []string{"exec"}, Self: "/bin/gpurun", SelfArgs: []string{"gpurun-kernel"}}
	for _, test := range []struct {
		config, mode string
		want         ExecConfig
	}{
		{"", "", ExecConfig{Command: "./score --fast | tee 'a b'"}},
		{"  \n", "", ExecConfig{Command: "./score --fast | tee 'a b'"}},
		{`{"x":[1]}`, "batch", ExecConfig{Command: "./score --fast | tee 'a b'", Mode: "batch", Config: json.RawMessage(`{"x":[1]}`)}},
	} {
		resolver.Exec.Mode = test.mode
		named, err := resolver.Resolve("exec:./score --fast | tee 'a b'", plugins.Config(test.config))
		if err != nil {
			t.Fatal(err)
		}
		var got ExecConfig
		if err := named.Config.Decode(&got); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v, %v", got, err)
		}
		if named.Path != "/bin/gpurun" || !reflect.DeepEqual(named.Args, []string{"gpurun-kernel", "exec"}) {
			t.Errorf("%+v", named)
		}
	}
	resolver.Exec = ExecOptions{ID: "id", MaxLine: 100}
	named, err := resolver.Resolve("exec:cat", nil)
	var got ExecConfig
	if err != nil || named.Config.Decode(&got) != nil || got.ID != "id" || got.MaxLine != 100 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{"mine", "a.py → mine"} {
		if _, err := resolver.Resolve(name, nil); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "an exec ID is for exec: kernels") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := resolver.Resolve("exec:cat", plugins.Config(`{`)); fault.KindOf(err) != fault.Usage {
		t.Errorf("a broken configuration: %v", err)
	}
	if _, err := (Resolver{Builtins: []string{"mine"}}).Resolve("exec:cat", nil); err == nil || !strings.Contains(err.Error(), "mine") {
		t.Errorf("without exec: %v", err)
	}
}

// TestFilesOfACommand: results depend on the files that a command names, and a program may
// write to its data files while it runs.
func TestFilesOfACommand(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"score.py": 0o644, "run": 0o755, "model.json": 0o644, "log": 0o644, "events": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	r := Resolver{Builtins: []string{"exec"}, Dir: dir}
	named, err := r.Resolve("exec:./run score.py model.json missing >> log 2> events", nil)
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	if want := in("run", "score.py", "model.json"); !slices.Equal(named.Files, want) {
		t.Errorf("its files are %q, not %q", named.Files, want)
	}
	if want := in("run", "score.py"); !slices.Equal(named.Reread, want) {
		t.Errorf("its code is %q, not %q", named.Reread, want)
	}
}
