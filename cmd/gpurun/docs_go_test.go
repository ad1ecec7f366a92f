package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocsGo compiles every Go fence of the documentation, as part of another module.
func TestDocsGo(t *testing.T) {
	if raceEnabled {
		t.Skip("run without -race, as make test does")
	}
	dir, where := t.TempDir(), make(map[string]string)
	for _, page := range documents(t) {
		for _, step := range page.steps {
			if step.lang != "go" || step.notes.skip != "" {
				continue
			}
			name := fmt.Sprintf("snippet%d", len(where))
			where[name] = fmt.Sprintf("%s:%d", page.path, step.line)
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name, "snippet.go"), []byte(wrapped(step)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(where) < 3 {
		t.Fatalf("only %d Go fences", len(where))
	}
	source, err := filepath.Abs("../..")
	if err == nil {
		err = makeModuleBeside(dir, "snippets", source)
	}
	if err != nil {
		t.Fatal(err)
	}
	// In a workspace with gpurun, its packages are those that this test was built from: as a
	// dependency, they would be compiled once more.
	list := exec.Command("sh", "-ec", `go list -deps ./... > /dev/null; go work init . "$1"; GOFLAGS="${GOFLAGS#-mod=mod}" go list -export -deps -json=ImportPath,Dir,GoFiles,ImportMap,Export,DepOnly ./...`, "sh", source)
	list.Dir, list.Env = dir, append(os.Environ(), docGoEnvironment(t)...)
	out, err := list.Output()
	problems := ""
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		problems = string(exit.Stderr)
	} else if err == nil {
		problems, err = vetPackages(t.TempDir(), out)
	}
	if problems != "" || err != nil {
		for name, place := range where {
			problems = strings.ReplaceAll(problems, name+"/", place+": ")
		}
		t.Errorf("%v\n%s", err, problems)
	}
}

// vetPackages vets the packages that go list -export -deps prints, without their dependencies: go vet
// also vets all of these, which takes 25 times as long, to know their functions that are like Printf.
func vetPackages(dir string, list []byte) (problems string, err error) {
	type entry struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		ImportMap               map[string]string
		DepOnly                 bool
	}
	var packages []entry
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var one entry
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
		exports[one.ImportPath] = one.Export
		if !one.DepOnly {
			packages = append(packages, one)
		}
	}
	tool, err := exec.Command("go", "tool", "-n", "vet").Output()
	if err != nil {
		return "", err
	}
	for _, one := range packages {
		names := one.ImportMap
		if names == nil {
			names = make(map[string]string)
		}
		for path := range exports {
			if names[path] == "" {
				names[path] = path
			}
		}
		files := make([]string, len(one.GoFiles))
		for i, name := range one.GoFiles {
			files[i] = filepath.Join(one.Dir, name)
		}
		config, err := json.Marshal(map[string]any{"ID": one.ImportPath, "Compiler": "gc", "Dir": one.Dir, "ImportPath": one.ImportPath,
			"GoFiles": files, "ImportMap": names, "PackageFile": exports, "VetxOutput": filepath.Join(dir, "facts")})
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "vet.cfg")
		if err := os.WriteFile(path, config, 0o666); err != nil {
			return "", err
		}
		if out, err := exec.Command(strings.TrimSpace(string(tool)), path).CombinedOutput(); err != nil {
			problems += string(out)
		}
	}
	if len(packages) == 0 {
		return "", errors.New("go list printed no packages")
	}
	return problems, nil
}
