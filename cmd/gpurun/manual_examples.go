package main

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/examples"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

// exampleName returns the path of an example below examples, such as etl or etl/clean.py; "."
// for the list of them.
func exampleName(page string) (string, bool) {
	first, rest, _ := strings.Cut(path.Clean(page), "/")
	return path.Clean(rest), first == "examples"
}

// exampleFile returns a file of an example, or the README of a folder.
func exampleFile(name string) (string, error) {
	info, err := fs.Stat(examples.Files, name)
	if err != nil {
		return "", noExample(name)
	}
	if info.IsDir() {
		name = path.Join(name, "README.md")
	}
	data, err := examples.Files.ReadFile(name)
	if path.Ext(name) == ".md" {
		return remarks.ReplaceAllString(string(data), ""), err
	}
	return string(data), err
}

func noExample(name string) error {
	switch name {
	case "cuda-kernel":
		return fault.NoExample.New("gpurun plugin new cuda FOLDER creates the example cuda-kernel")
	case "go-etl":
		return fault.NoExample.New("the example go-etl is a Go module and only in the repository; gpurun manual embedding shows such a program")
	}
	entries, _ := fs.ReadDir(examples.Files, ".") // it is embedded
	var names []string
	for _, entry := range entries {
		names = append(names, "examples/"+entry.Name())
	}
	return fault.NoExample.New("there is no example %q%s", name, nearest.Hint("examples/"+name, names, 3, "; gpurun manual examples lists them"))
}

// copyExample writes the files of an example to a folder.
func copyExample(page, folder string) error {
	name, isExample := exampleName(page)
	if !isExample || name == "." || folder == "" {
		return fault.NoExample.New("name an example and a folder, like: gpurun manual examples/etl --copy my-etl")
	}
	if info, err := fs.Stat(examples.Files, name); err != nil || !info.IsDir() {
		return noExample(name)
	}
	files, err := fs.Sub(examples.Files, name)
	if err = cmp.Or(err, checkEmpty(folder)); err == nil {
		err = os.CopyFS(folder, files)
	}
	scripts, _ := filepath.Glob(filepath.Join(folder, "*.sh")) // the pattern is valid
	for _, script := range scripts {
		err = cmp.Or(err, os.Chmod(script, 0o755))
	}
	return fault.BadScaffold.Wrap(err)
}
