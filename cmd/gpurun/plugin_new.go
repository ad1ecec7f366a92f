package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/examples"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

//go:embed all:scaffold
var scaffolds embed.FS

// modulePath is the module that a Go kernel imports.
const modulePath = "github.com/gpurun/gpurun"

func newPluginNew() *cobra.Command {
	var o struct{ Source string }
	return newCommand(&cobra.Command{
		Use:   "new go|python|cuda DIR",
		Short: "Create a working kernel to start from",
		Long: `Create a small working kernel in DIR, with sample records and, in Python and Go,
a test. DIR must be empty or not exist.

  gpurun plugin new python my-kernel
  gpurun try my-kernel/kernel.py my-kernel/sample.jsonl
  python -m pytest my-kernel            # needs pytest and the package gpurun

  gpurun plugin new go my-kernel
  cd my-kernel && go build && gpurun plugin check ./my-kernel sample.jsonl

  gpurun plugin new cuda my-kernel      # a Go kernel that uses CUDA
  cd my-kernel && go build && gpurun plugin check ./my-kernel sample.jsonl`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return fault.BadScaffold.Wrap(scaffold(args[0], args[1], o.Source))
		},
	}, &o, spec.Setting{Name: "source", Field: "Source", Value: "FOLDER", Help: "build a Go kernel against the gpurun source in this FOLDER"})
}

// language is one of the scaffolds.
type language struct {
	files fs.FS
	root  string
	next  string // what to type next
	isGo  bool
}

var languages = map[string]language{
	"python": {scaffolds, "scaffold/python", "gpurun try %[1]s/kernel.py %[1]s/sample.jsonl", false},
	"go":     {scaffolds, "scaffold/go", "cd %[1]s && go build && gpurun plugin check ./%[2]s sample.jsonl", true},
	"cuda":   {examples.CUDA, "cuda-kernel", "cd %[1]s && go build && gpurun plugin check ./%[2]s sample.jsonl", true},
}

func scaffold(name, dir, source string) error {
	chosen, known := languages[name]
	if !known {
		return fault.BadScaffold.New("%q is not a supported language: use go, python or cuda", name)
	}
	full, err := filepath.Abs(dir)
	if err == nil {
		err = checkEmpty(dir)
	}
	name = filepath.Base(full)
	if err == nil {
		err = chosen.write(dir, name)
	}
	if err == nil && chosen.isGo {
		err = makeModule(dir, name, cmp.Or(source, findSource()))
	}
	if err == nil {
		fmt.Printf("created %s; next:\n  "+chosen.next+"\n", dir, name)
	}
	return err
}

// checkEmpty refuses a folder that exists and has files.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty", dir)
	case errors.Is(err, os.ErrNotExist):
		return nil
	}
	return err
}

// write copies the files of a language. Names end in .tmpl where the go command would
// otherwise treat the files as part of gpurun. gpurun's own tests are not copied.
func (l language) write(dir, name string) error {
	names := strings.NewReplacer("NAME", name, modulePath+"/examples/cuda-kernel", moduleName(name), "minhash-cuda", name)
	return fs.WalkDir(l.files, l.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(entry.Name(), "_test.go") {
			return err
		}
		target := filepath.Join(dir, strings.TrimSuffix(strings.TrimPrefix(path, l.root), ".tmpl"))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o777)
		}
		data, err := fs.ReadFile(l.files, path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(names.Replace(string(data))), 0o666)
	})
}

// makeModule turns the folder into a Go module, built against gpurun's source unless that is "".
func makeModule(dir, name, source string) error {
	if source != "" {
		return makeModuleBeside(dir, name, source)
	}
	text := fmt.Sprintf("module %s\n\ngo 1.26\n", moduleName(name))
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o666); err != nil {
		return err
	}
	tidy := exec.Command("go", "mod", "tidy")
	tidy.Dir = dir
	if out, err := tidy.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "warning: go mod tidy failed (%v); run it again before go build:\n%s", err, out)
	}
	return nil
}

// makeModuleBeside gives the module exactly the dependencies of gpurun's source, so that
// it builds wherever gpurun was built, without a network. go mod tidy would also download
// what only the tests of those dependencies need.
func makeModuleBeside(dir, name, source string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	own, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	dependencies, ours := strings.CutPrefix(string(own), "module "+modulePath+"\n")
	if !ours {
		return fmt.Errorf("--source: %s is not the source of gpurun: its go.mod names another module", source)
	}
	dependencies, _, _ = strings.Cut(dependencies, "\ntool (")
	text := fmt.Sprintf("module %s\n%s\nrequire %s v0.0.0\n\nreplace %s => %s\n",
		moduleName(name), dependencies, modulePath, modulePath, source)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o666); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o666)
}

// moduleName turns name into a valid module path.
func moduleName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
}

// findSource looks for gpurun's source in the folders above the program and above the
// working directory, where a build with make has it.
func findSource() string {
	var starts []string
	if self, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(self))
	}
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
				return dir
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return ""
}
