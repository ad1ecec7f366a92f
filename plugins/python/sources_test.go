package python_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// sourceTree creates files in a folder and opens kernel.py in it, followed by the steps of
// then.
func sourceTree(t *testing.T, files map[string]string, then ...string) (dir string, k plugins.Kernel) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, start(t, "", func(c *resolve.PythonConfig) {
		c.File = filepath.Join(dir, "kernel.py")
		for _, name := range then {
			c.Name = "kernel.py"
			c.Then = append(c.Then, resolve.PythonStep{Name: name, File: filepath.Join(dir, name)})
		}
	})
}

// loaded are the names, below dir, of the sources that a kernel reports, in order.
func loaded(t *testing.T, dir string, k plugins.Kernel) []string {
	t.Helper()
	var names []string
	for _, source := range k.(plugins.Reporter).Report().Sources {
		data, err := os.ReadFile(source.Path)
		if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != source.Sum {
			t.Errorf("%s: sum %s is not that of the file (%v)", source.Path, source.Sum, err)
		}
		names = append(names, strings.TrimPrefix(source.Path, dir+"/"))
	}
	slices.Sort(names)
	return names
}

func expectLoaded(t *testing.T, dir string, k plugins.Kernel, want ...string) {
	t.Helper()
	if got := loaded(t, dir, k); !slices.Equal(got, want) {
		t.Errorf("loaded %q, not %q", got, want)
	}
}

// The user's own files are reported, however they are imported, and no others.
func TestSourcesAreThoseOfTheUser(t *testing.T) {
	dir, k := sourceTree(t, map[string]string{
		"kernel.py":                           kernelOfMany,
		"plain.py":                            "",
		"package/__init__.py":                 "from . import sibling",
		"package/sibling.py":                  "",
		"package/inner.py":                    "",
		"spaced/below.py":                     "", // in a namespace package, which has no file itself
		"dynamic.py":                          "",
		"not_imported.py":                     "",
		"venv/lib/site-packages/installed.py": "",
		".cache/hidden.py":                    "",
	})
	expectLoaded(t, dir, k, "dynamic.py", "kernel.py", "package/__init__.py", "package/inner.py", "package/sibling.py", "plain.py", "spaced/below.py")
}

const kernelOfMany = `
import json, colorsys, sys, os
import plain, package.inner, spaced.below
from importlib import import_module
import_module("dynamic")
here = os.path.dirname(__file__)
sys.path.append(here + "/venv/lib/site-packages")
import installed
import importlib.util
spec = importlib.util.spec_from_file_location("hidden", here + "/.cache/hidden.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
def process(batch): return batch
`

// Modules imported late are reported with the batch that imported them, also from other
// folders of the search path; in a chain, those of all steps.
func TestSourcesComeWithTheirBatch(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "elsewhere.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", other)
	dir, k := sourceTree(t, map[string]string{
		"kernel.py": "def prepare(batch):\n    import ahead\n    return batch\ndef process(batch):\n    import late\n    return {'x': batch['n']}",
		"second.py": "def process(batch):\n    import elsewhere, bad\n    return batch",
		"ahead.py":  "", "late.py": "", "bad.py": "raise ValueError('bad')",
	}, "second.py")
	expectLoaded(t, dir, k, "kernel.py", "second.py")
	if _, err := call(t, k, `{"n":1}`); err == nil {
		t.Fatal("no failure")
	}
	expectLoaded(t, dir, k, filepath.Join(other, "elsewhere.py"), "ahead.py", "bad.py", "kernel.py", "late.py", "second.py")
}

// The checksum belongs to the compiled source: an edit right after it does not change the
// checksum, and stale bytecode is not used.
func TestSourcesAreWhatWasCompiled(t *testing.T) {
	python := needPython(t)
	dir := t.TempDir()
	helper := filepath.Join(dir, "helper.py")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(helper, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_700_000_000, 0)
		if err := os.Chtimes(helper, when, when); err != nil {
			t.Fatal(err)
		}
	}
	put("version = 1\n")
	if out, err := exec.Command(python, "-m", "compileall", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	put("version = 2\n") // same length, same time
	kernel := filepath.Join(dir, "kernel.py")
	text := "import helper\nopen(helper.__file__, 'w').write('version = 3')\ndef process(batch): return {'x': [helper.version] * len(batch)}"
	if err := os.WriteFile(kernel, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	k := start(t, "", func(c *resolve.PythonConfig) { c.File = kernel })
	expect(t, k, []string{"{}"}, []string{"x=2"})
	sum := sha256.Sum256([]byte("version = 2\n"))
	want := plugins.Source{Path: helper, Sum: hex.EncodeToString(sum[:])}
	if got := k.(plugins.Reporter).Report().Sources; !slices.Contains(got, want) {
		t.Errorf("%+v", got)
	}
}

// Compiled extensions, and bytecode without source, are reported like other files.
func TestSourcesWithoutText(t *testing.T) {
	python := needPython(t)
	library, err := exec.Command(python, "-c", "import _ctypes; print(_ctypes.__file__)").Output()
	if err != nil {
		t.Skipf("SKIPPED: no compiled extension to copy: %v", err)
	}
	extension, err := os.ReadFile(strings.TrimSpace(string(library)))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(strings.TrimSpace(string(library)))
	dir, k := sourceTree(t, map[string]string{
		name: string(extension), "bare.py": "",
		"kernel.py": `
import os, py_compile, importlib.util
here = os.path.dirname(__file__)
py_compile.compile(here + "/bare.py", here + "/bare.pyc"); os.remove(here + "/bare.py")
import bare
spec = importlib.util.spec_from_file_location("_ctypes", here + "/` + name + `")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
def process(batch): return batch
`})
	expectLoaded(t, dir, k, name, "bare.pyc", "kernel.py")
}

// The proxy of a kernel process reports the same sources as the process, also after a
// failed Open.
func TestSourcesOverTheWire(t *testing.T) {
	needPython(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernel.py": "import helper\ndef process(batch):\n    import late\n    return batch", "helper.py": "", "late.py": "",
		"broken.py": "import helper, wrong\ndef process(batch): pass", "wrong.py": "def (",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	open := func(file string) (*process.Process, error) {
		p, err := process.Start(t.Context(), process.Command{Path: self, Env: append(os.Environ(), kernelVariable+"=python")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		c := config(t, resolve.PythonConfig{File: filepath.Join(dir, file)})
		if _, err := p.Describe(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return p, p.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 1}, c)
	}
	k, err := open("kernel.py")
	if err != nil {
		t.Fatal(err)
	}
	expectLoaded(t, dir, k, "helper.py", "kernel.py")
	expect(t, k, []string{"{}"}, []string{"unchanged"})
	expectLoaded(t, dir, k, "helper.py", "kernel.py", "late.py")
	k, err = open("broken.py")
	if err == nil {
		t.Fatal("a module that cannot be compiled was opened")
	}
	expectLoaded(t, dir, k, "broken.py", "helper.py", "wrong.py")
}
