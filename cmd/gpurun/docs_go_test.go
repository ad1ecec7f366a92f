package main

import (
	"fmt"
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
	vet := exec.Command("sh", "-ec", `go list -deps ./... > /dev/null; go work init . "$1"; GOFLAGS="${GOFLAGS#-mod=mod}" go vet ./...`, "sh", source)
	vet.Dir, vet.Env = dir, append(os.Environ(), docGoEnvironment(t)...)
	if out, err := vet.CombinedOutput(); err != nil {
		text := string(out)
		for name, place := range where {
			text = strings.ReplaceAll(text, name+"/", place+": ")
		}
		t.Errorf("%v\n%s", err, text)
	}
}
