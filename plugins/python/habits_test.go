package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// A member that is read but not changed stays as it was, to the last digit.
func TestReadingChangesNothing(t *testing.T) {
	k := start(t, "def process(batch):\n    for r in batch: r['x'], len(r), list(r)\n    return batch")
	for _, record := range []string{`{"x":[9007199254740993,0.5]}`, `{"x":[1e400, 1.0]}`, `{"x": {"y":12345678901234567890.5}}`} {
		expect(t, k, []string{record}, []string{"unchanged"})
	}
}

// A member may have an empty name, as a pandas index does.
func TestMemberWithoutName(t *testing.T) {
	records := []string{`{"":1,"a":2}`, `{"":3}`}
	k := start(t, "def process(batch): return {'x': batch[''], 'y': [r.get('', 0) + ('' in r) for r in batch]}")
	for range 2 {
		expect(t, k, records, []string{"x=1 y=2", "x=3 y=4"})
	}
	k = start(t, "def prepare(batch): return batch['']\ndef process(x): return {'x': x}")
	for range 2 {
		expect(t, k, records, []string{"x=1", "x=3"})
	}
}

// A kernel may change the lists of a column without side effects, even if it is called
// again without the records that lack a member.
func TestListsAreItsOwn(t *testing.T) {
	k := start(t, "def process(batch):\n    for t in batch['tags']: t.append('x')\n    batch['m']\n    return {'tags': batch['tags']}")
	expect(t, k, []string{`{"tags":["a"],"m":1}`, `{"tags":["b"]}`}, []string{`tags=["a","x"]`, `failed: the record has no member "m"`})
	k = start(t, "def process(batch):\n    for v in batch['v']: v.append(9)\n    batch['m']\n    return {'v': batch['v']}")
	expect(t, k, []string{`{"v":[1,2],"m":1}`, `{"v":[3,4]}`}, []string{`v=[1,2,9]`, `failed: the record has no member "m"`})
}

// An array of an unknown kind is copied before the next batch can change it.
func TestArrayUsedAgain(t *testing.T) {
	numpy := withPackage(t, "numpy")
	k := start(t, `
import numpy as np
class Series:
    shape = (1,)
    def __init__(self): self.values = np.zeros(1)
    def __array__(self, dtype=None, copy=None): return self.values
class Later(Series):
    def copy_to_host_async(self): pass
series, n = Series(), 0
def process(batch):
    global n
    n += 1
    series.values[:] = n
    return {"x": series, "y": Later()}
`, interpreter(numpy))
	first, second := plugins.Submit(t.Context(), k, batch("{}")), plugins.Submit(t.Context(), k, batch("{}"))
	for i, results := range []*plugins.Results{first, second} {
		wait(t, results)
		if got, want := texts(results)[0], []string{"x=1.0 y=0.0", "x=2.0 y=0.0"}[i]; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

// User files with the name of a standard module do not shadow it for the runner.
func TestNamesOfModules(t *testing.T) {
	t.Run("in the working folder", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"json", "types", "array", "select", "traceback"} {
			if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte("raise SystemExit('not this one')"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir)
		k := start(t, "import json\ndef process(batch): return {'x': [json.loads('1')]}")
		expect(t, k, []string{"{}"}, []string{"x=1"})
	})
	t.Run("next to the kernel", func(t *testing.T) {
		k := start(t, "def process(batch): raise ValueError('mine')", func(c *resolve.PythonConfig) {
			for _, name := range []string{"tokenize", "traceback", "linecache"} {
				if err := os.WriteFile(filepath.Join(filepath.Dir(c.File), name+".py"), []byte("raise SystemExit('not this one')"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
		if _, err := call(t, k, "{}"); err == nil || err.Error() != "ValueError: mine" || !strings.Contains(detail(err), "line 1, in process") {
			t.Errorf("%v\n%s", err, detail(err))
		}
	})
	t.Run("next to a concurrent kernel", func(t *testing.T) {
		k := start(t, "import asyncio\nasync def process(record): await asyncio.sleep(0); return {'x': 1}", func(c *resolve.PythonConfig) {
			for _, name := range []string{"asyncio", "selectors", "logging", "queue"} {
				if err := os.WriteFile(filepath.Join(filepath.Dir(c.File), name+".py"), []byte("raise SystemExit('not this one')"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
		if got := show(ask(t, k, "{}")); got != `lines {"x":1}` {
			t.Error(got)
		}
	})
}

// Only concurrent kernels wait for the import of asyncio.
func TestAsyncioIsImportedWhenNeeded(t *testing.T) {
	k := start(t, "import sys\ndef process(batch): return {'x': ['asyn' + 'cio' in sys.modules]}")
	expect(t, k, []string{"{}"}, []string{"x=false"})
}

// A symbolic link to a kernel works like its target, with the modules next to the target.
func TestLinkedKernel(t *testing.T) {
	k := start(t, "import helper\ndef process(batch): return {'x': [helper.x]}", func(c *resolve.PythonConfig) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(c.File), "helper.py"), []byte("x = 7"), 0o644); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link.py")
		if err := os.Symlink(c.File, link); err != nil {
			t.Fatal(err)
		}
		c.File = link
	})
	expect(t, k, []string{"{}"}, []string{"x=7"})
}

// An immutable exception is reported like any other.
func TestFrozenException(t *testing.T) {
	k := start(t, `
import dataclasses
@dataclasses.dataclass(frozen=True)
class Bad(Exception):
    what: str
def process(batch): raise Bad("cold")
`)
	for range 2 {
		if _, err := call(t, k, "{}"); err == nil || !strings.HasPrefix(err.Error(), "kernel.Bad") {
			t.Fatal(err)
		}
	}
}

// prepare may return None, and is called once per batch.
func TestPrepareReturnsNone(t *testing.T) {
	k := start(t, "n = 0\ndef prepare(batch):\n    global n\n    n += 1\ndef process(nothing): return {'x': [n, nothing]}")
	expect(t, k, []string{"{}", "{}"}, []string{"x=1", "x=null"})
}

// An array.array within a value.
func TestNaNInArray(t *testing.T) {
	k := start(t, "import array\ndef process(batch): return [{'x': array.array('d', [1, float('nan')])}]")
	expect(t, k, []string{"{}"}, []string{`{"x":[1.0,null]}`})
}

// Only values that are written as null are counted.
func TestNullsCountedOnce(t *testing.T) {
	k := start(t, "def process(batch): return [{'v': float('nan')} if r['a'] != 3 else 5 for r in batch]")
	if _, err := call(t, k, `{"a":1}`, `{"a":2}`, `{"a":3}`); err == nil {
		t.Fatal("a number was taken for a record")
	}
	results, err := plugins.Call(t.Context(), k, batch(`{"a":1}`, `{"a":2}`))
	if err != nil || results.Nulls() != 2 {
		t.Errorf("%d nulls, %v", results.Nulls(), err)
	}
}

// With --nan error only NaN and infinity are reported as such.
func TestNaNErrorOfOthers(t *testing.T) {
	k := start(t, "def process(batch): return [{'x': 10 ** 5000}]", func(c *resolve.PythonConfig) { c.NaN = "error" })
	got, err := call(t, k, "{}")
	if err != nil || strings.Contains(got[0], "finite") {
		t.Errorf("%q, %v", got, err)
	}
}

// A process that a kernel's child starts keeps its open files.
func TestGrandchild(t *testing.T) {
	k := start(t, `
import os
def process(batch):
    child = os.fork()
    if child == 0:
        file = os.open(os.devnull, os.O_RDONLY)  # it has number 3
        if os.fork() == 0:
            try: os.fstat(file); os._exit(0)
            except OSError: os._exit(1)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    return {"x": [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]}
`)
	expect(t, k, []string{"{}"}, []string{"x=0"})
}

// Columns added by an earlier step arrive as the step's inputs say, and a step may not
// return a dict or a string as a column.
func TestInputsOfSteps(t *testing.T) {
	numpy := withPackage(t, "numpy")
	const second = "import numpy\ninputs = {'w': 'numpy'}\ndef process(batch): return {'y': [type(batch['w']).__name__, type(batch['a']).__name__]}"
	for name, first := range map[string]string{
		"a column": "import numpy\ndef process(batch): return {'w': [1, 2]}",
		"dicts":    "import numpy\ndef process(batch): return [{'w': 1, 'a': 2} for r in batch]",
	} {
		k := start(t, first, then(t, second), interpreter(numpy))
		got, err := call(t, k, `{"a":1}`, `{"a":2}`)
		if err != nil || !strings.Contains(got[0], `ndarray`) || !strings.Contains(got[1], "ndarray") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	k := start(t, "def process(batch): return [dict(r) for r in batch]", then(t, "def process(batch): return {'x': dict(a=1, b=2)}"))
	if _, err := call(t, k, `{"a":1}`, `{"a":2}`); err == nil || !strings.Contains(err.Error(), "column 'x' is a dict") {
		t.Error(err)
	}
}

// A lone surrogate is written back unchanged.
func TestHalfSurrogates(t *testing.T) {
	k := start(t, `def process(batch): return [{"x": "\ud800é", "y": dict(r)["x"]} for r in batch]`)
	expect(t, k, []string{`{"x":"\udc80"}`}, []string{`{"x":"\ud800é","y":"\udc80"}`})
	k = start(t, `def process(batch): return {"x": ["a\ud800", "é"]}`)
	expect(t, k, []string{"{}", "{}"}, []string{`x="a\ud800"`, `x="é"`})
}
