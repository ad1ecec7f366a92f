package python_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// then adds steps to a kernel, named second.py, third.py.
func then(t testing.TB, sources ...string) func(*resolve.PythonConfig) {
	return func(c *resolve.PythonConfig) {
		c.Name = "first.py"
		for i, source := range sources {
			name := []string{"second.py", "third.py"}[i]
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
				t.Fatal(err)
			}
			c.Then = append(c.Then, resolve.PythonStep{Name: name, File: path, Config: json.RawMessage(`{"n":2}`)})
		}
	}
}

// Steps in one process: each step gets what the previous one returned.
func TestSteps(t *testing.T) {
	const seen = "def process(batch): return {'seen': batch['x']}"
	records := []string{`{"a":1, "b":[1]}`, `{"a":2}`, `{"a":3}`}
	for name, test := range map[string]struct {
		first, second string
		want          []string
	}{
		"columns":               {"def process(batch): return {'x': [a * 10 for a in batch['a']]}", seen, []string{"x=10 seen=10", "x=20 seen=20", "x=30 seen=30"}},
		"a column again":        {"def process(batch): return {'a': [a * 10 for a in batch['a']]}", "def process(batch): return {'y': batch['a']}", []string{"a=10 y=10", "a=20 y=20", "a=30 y=30"}},
		"nothing":               {"def process(batch): return {}", "def process(batch): return {'y': batch['a']}", []string{"y=1", "y=2", "y=3"}},
		"not JSON between":      {"def process(batch): return {'x': [{a} for a in batch['a']]}", "def process(batch): return {'x': [len(x) for x in batch['x']]}", []string{"x=1", "x=1", "x=1"}},
		"drops":                 {"def process(batch): return [r if r['a'] != 2 else None for r in batch]", "def process(batch): return {'n': [len(batch)] * len(batch)}", []string{"n=2", "drop", "n=2"}},
		"drops after":           {"def process(batch): return {'x': batch['a']}", "def process(batch): return [r if r['x'] != 2 else None for r in batch]", []string{`{"a":1, "b":[1],"x":1}`, "drop", `{"a":3,"x":3}`}},
		"drops all":             {"def process(batch): return [None] * len(batch)", "def process(batch): return {'x': 1 / 0}", []string{"drop", "drop", "drop"}},
		"fails":                 {"def process(batch): return [r if r['a'] != 2 else ValueError('no') for r in batch]", "def process(batch): return {'n': [len(batch)] * len(batch)}", []string{"n=2", "failed: first.py: ValueError: no", "n=2"}},
		"fails in a column":     {"def process(batch): return {'x': [1, KeyError('k'), 3]}", seen, []string{"x=1 seen=1", "failed: first.py: KeyError: 'k'", "x=3 seen=3"}},
		"fails later":           {"def process(batch): return {'x': batch['a']}", "def process(batch): return [ValueError('no') if r['x'] == 2 else r for r in batch]", []string{`{"a":1, "b":[1],"x":1}`, "failed: second.py: ValueError: no", `{"a":3,"x":3}`}},
		"missing later":         {"def process(batch): return batch", "def process(batch): return {'x': batch['b']}", []string{"x=[1]", `failed: second.py: the record has no member "b"`, `failed: second.py: the record has no member "b"`}},
		"changed":               {"def process(batch):\n    for r in batch: r['a'] += 1\n    return batch", "def process(batch): return {'x': batch['a']}", []string{`{"a":2,"b":[1],"x":2}`, `{"a":3,"x":3}`, `{"a":4,"x":4}`}},
		"other records":         {"def process(batch): return [{'c': r['a']} for r in batch]", "def process(batch): return {'x': batch['c']}", []string{`{"c":1,"x":1}`, `{"c":2,"x":2}`, `{"c":3,"x":3}`}},
		"several":               {"def process(batch): return [[{'c': i} for i in range(r['a'])] for r in batch]", "def process(batch): return {'n': [len(batch)] * len(batch)}", []string{`{"c":0,"n":6}`, `{"c":0,"n":6}+{"c":1,"n":6}`, `{"c":0,"n":6}+{"c":1,"n":6}+{"c":2,"n":6}`}},
		"several, some dropped": {"def process(batch): return [[{'c': i} for i in range(r['a'])] for r in batch]", "def process(batch): return [r if r['c'] == 1 else None for r in batch]", []string{"drop", `{"c":1}`, `{"c":1}`}},
		"several, one fails":    {"def process(batch): return [[{'c': i} for i in range(r['a'])] for r in batch]", "def process(batch): return [r if r['c'] < 2 else ValueError('no') for r in batch]", []string{`{"c":0}`, `{"c":0}+{"c":1}`, "failed: second.py: ValueError: no"}},
		"a generator":           {"def process(batch):\n    for r in batch: yield r", "def process(batch): return {'x': batch['a']}", []string{"x=1", "x=2", "x=3"}},
		"prepares":              {"def prepare(batch): return batch['a']\ndef process(a): return {'x': a}", "def prepare(batch): return batch['x']\ndef process(x): return {'seen': [v + 1 for v in x]}", []string{"x=1 seen=2", "x=2 seen=3", "x=3 seen=4"}},
		"one changes":           {"def process(batch):\n    batch[0]['c'] = 5\n    return batch", "def process(batch): return list(batch)", []string{`{"a":1,"b":[1],"c":5}`, "unchanged", "unchanged"}},
		"one changes, later":    {"def process(batch):\n    batch[1]['c'] = 5\n    return batch", "def process(batch): return {'x': batch['a']}", []string{`{"a":1, "b":[1],"x":1}`, `{"a":2,"c":5,"x":2}`, `{"a":3,"x":3}`}},
		"adds, one changes":     {"def process(batch): return {'x': [1, 2, 3]}", "def process(batch):\n    batch[1]['x'] = 5\n    return batch", []string{`{"a":1, "b":[1],"x":1}`, `{"a":2,"x":5}`, `{"a":3,"x":3}`}},
		"another order":         {"def process(batch): return batch[::-1]", "def process(batch): return {'x': batch['a']}", []string{`{"a":3,"x":3}`, `{"a":2,"x":2}`, `{"a":1,"b":[1],"x":1}`}},
		"several of one":        {"def process(batch): return [[r, {**r, 'copy': 1}] for r in batch if r['a'] == 1] + [None] * 2", "def process(batch):\n    for r in batch: r['b'].append('q')\n    return batch", []string{`{"a":1,"b":[1,"q"]}+{"a":1,"b":[1,"q"],"copy":1}`, "drop", "drop"}},
		"changed unreturned":    {"def process(batch):\n    for b in batch.get('b'): b and b.append(2)\n    return {}", "def process(batch): return {'x': batch.get('b')}", []string{"x=[1]", "x=null", "x=null"}},
		"configured":            {"def process(batch): return batch", "def setup(ctx):\n    global n\n    n = ctx.config['n']\ndef process(batch): return {'x': [n] * len(batch)}", []string{"x=2", "x=2", "x=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, test.first, then(t, test.second))
			for range 2 {
				expect(t, k, records, test.want)
			}
		})
	}
	t.Run("three", func(t *testing.T) {
		k := start(t, "def process(batch): return {'x': batch['a']}",
			then(t, "def process(batch): return [r if r['x'] > 1 else None for r in batch]", "def process(batch): return {'y': [x * 2 for x in batch['x']]}"))
		expect(t, k, records, []string{"drop", "x=2 y=4", "x=3 y=6"})
	})
}

// The error names the step whose batch fails, or that cannot be opened.
func TestStepFailures(t *testing.T) {
	k := start(t, "def process(batch): return batch", then(t, "def process(batch): raise ValueError('no')"))
	_, err := call(t, k, `{}`)
	if e := fault.As(err); e == nil || e.Step != "second.py" || e.Message != "ValueError: no" || !strings.Contains(e.Detail, "second.py\", line 1") {
		t.Errorf("%+v", e)
	}
	_, err = try(t, "def process(batch): return batch", then(t, "def process(batch): return batch\ndef setup(ctx): raise ValueError('no model')"))
	if err == nil || err.Error() != "kernel second.py: ValueError: no model" {
		t.Error(err)
	}
	_, err = try(t, "def process(batch): return batch", then(t, "def proces(batch): return batch"))
	if err == nil || !strings.HasPrefix(err.Error(), "kernel second.py: the file defines no process(batch) function; to use another one") {
		t.Error(err)
	}
	for body, want := range map[string]string{
		"return {'x': [1]}":         "process returned 1 value in column 'x' for 2 records",
		"return {'x': 'ab'}":        "column 'x' is a str, not a list of 2 values",
		"return {1: [1, 2]}":        "process returned a column named 1",
		"return [1, 2]":             "process returned an int for a record: return a dict",
		"return None":               "process returned None",
		"return [None]":             "process returned 1 result for 2 records",
		"return [{1: 2}, {'a': 1}]": "TypeError: member name 1 is not a string",
	} {
		k := start(t, "def process(batch):\n    "+body, then(t, "def process(batch): return batch"))
		_, err := call(t, k, `{}`, `{}`)
		if e := fault.As(err); e == nil || e.Step != "first.py" || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// Columns of frameworks that accept no list as an index, or whose values have labels, also
// reach the next step after some records were removed.
func TestColumnsOfOtherFrameworks(t *testing.T) {
	numpy := withPackage(t, "numpy")
	const first = `
import numpy as np
class Jax:
    def __init__(self, values): self.values, self.shape = values, values.shape
    def __len__(self): return len(self.values)
    def __iter__(self): return iter(self.values)
    def __getitem__(self, i):
        if isinstance(i, list): raise TypeError("no list")
        return Jax(self.values[i]) if isinstance(i, np.ndarray) else self.values[i]
    def __array__(self, dtype=None, copy=None): return self.values
    def copy_to_host_async(self): pass
class Series:
    shape, iloc = (3,), None
    def __len__(self): return 3
    def __iter__(self): return iter([10, 20, 30])
    def __getitem__(self, label): return {2: 10, 1: 20, 0: 30}[label]
    def to_numpy(self): return np.array([10, 20, 30])
def process(batch): return {"x": Jax(np.arange(3.0)), "y": Series()}
`
	k := start(t, first, then(t, "def process(batch): return [r if r['n'] != 2 else None for r in batch]"),
		then(t, "def process(batch): return {'z': [r['y'] for r in batch], 'w': [type(batch['x']).__name__] * len(batch)}"), interpreter(numpy))
	expect(t, k, []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}, []string{`x=0.0 y=10 z=10 w="Jax"`, "drop", `x=2.0 y=30 z=30 w="Jax"`})
	expect(t, k, []string{`{"n":2}`, `{"n":2}`, `{"n":2}`}, []string{"drop", "drop", "drop"})
}
