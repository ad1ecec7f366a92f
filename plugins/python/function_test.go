package python_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/resolve"
)

func function(name string) func(*resolve.PythonConfig) {
	return func(c *resolve.PythonConfig) { c.Function = name }
}

func userConfig(text string) func(*resolve.PythonConfig) {
	return func(c *resolve.PythonConfig) { c.Config = json.RawMessage(text) }
}

const several = `
ready = "no"

def setup(ctx):
    global ready
    ready = ctx.device

def upper(batch):
    return {"x": [text.upper() + ready for text in batch["text"]]}

class Repeater:
    closed = []

    def __init__(self, ctx, times=2):
        self.times, self.device = times, ctx.device

    def __call__(self, batch):
        return {"x": [text * self.times + self.device for text in batch["text"]]}

class Needs:
    def __init__(self, model): self.model = model
    def __call__(self, batch): return {"x": [self.model for _ in batch]}

class Plain:
    pass
`

// The user names what computes a batch: a function, or a class as in Ray.
func TestNamedFunction(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"upper":    {"", `x="ABcpu"`},
		"Repeater": {"", `x="ababcpu"`},
		"Needs":    {`{"model":"m"}`, `x="m"`},
	} {
		expect(t, start(t, several, function(name), userConfig(test.config)), []string{`{"text":"ab"}`}, []string{test.want})
	}
	expect(t, start(t, several, function("Repeater"), userConfig(`{"times":3}`)), []string{`{"text":"ab"}`}, []string{`x="abababcpu"`})
	expect(t, start(t, several+"\nprocess = Repeater"), []string{`{"text":"a"}`}, []string{`x="aacpu"`})
}

// A name that the file does not define is reported before any work, with the names that
// it does.
func TestNoSuchFunction(t *testing.T) {
	for name, want := range map[string]string{
		"uper":   "the file defines no function or class uper; it defines upper, Repeater, Needs",
		"Plain":  "class Plain has no method __call__(self, batch)",
		"Needs":  "Needs(…) needs 'model', which the kernel's configuration does not have",
		"":       "the file defines no process(batch) function; to use another one, name it after the file, as in FILE.py:upper (it defines upper, Repeater, Needs)",
		"ready ": "the file defines no function or class ready ",
	} {
		_, err := try(t, several, function(name))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %s", name, err, want)
		}
		if kind := fault.KindOf(err); kind == fault.Crash {
			t.Errorf("%q: %s", name, kind)
		}
	}
}

// A class is closed with the kernel.
func TestClassCloses(t *testing.T) {
	k := start(t, `
class process:
    def __call__(self, batch): return batch
    def close(self): raise ValueError("closed")
`)
	expect(t, k, []string{"{}"}, []string{"unchanged"})
	if err := k.Close(); err == nil || !strings.Contains(err.Error(), "ValueError: closed") {
		t.Error(err)
	}
}

// A chain names a function of each file.
func TestNamedFunctionInChain(t *testing.T) {
	next := write(t, several)
	k := start(t, several, function("upper"), func(c *resolve.PythonConfig) {
		c.Name = "first"
		c.Then = []resolve.PythonStep{{Name: "second", File: next, Function: "Repeater"}}
	})
	expect(t, k, []string{`{"text":"ab"}`}, []string{`x="ababcpu"`})
}

// A batch is a mapping of columns too.
func TestBatchAsMapping(t *testing.T) {
	records := []string{`{"a":1,"b":"x"}`, `{"a":2,"c":[1]}`, `[3]`}
	for expression, want := range map[string]string{
		`list(map(str, batch.keys()))`:              `['a', 'b', 'c']`,
		`dict(batch)`:                               `{'a': [1, 2, None], 'b': ['x', None, None], 'c': [None, [1], None]}`,
		`batch.items()[0]`:                          `('a', [1, 2, None])`,
		`batch.values()[2]`:                         `[None, [1], None]`,
		`(lambda **columns: columns["a"])(**batch)`: `[1, 2, None]`,
		`repr(batch)`:                               `'<Batch of 3 records with a, b, c>'`,
		`len(list(batch))`:                          `3`,
	} {
		k := start(t, "def process(batch): return {'x': [repr("+expression+")] * len(batch)}")
		got, err := call(t, k, records...)
		if err != nil || got[0] != "x="+asJSON(want) {
			t.Errorf("%s: %q, not %s, %v", expression, got, want, err)
		}
	}
}

func asJSON(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return strings.TrimSpace(b.String())
}

// Columns that are set in a batch are part of the result when it is returned.
func TestSetColumn(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"set":      {`batch["x"] = [len(v) for v in batch["b"]]`, []string{"x=1", `failed: the record has no member "b"`, "x=2"}},
		"twice":    {`batch["x"] = batch["a"]; batch["y"] = batch["x"]`, []string{"x=1 y=1", "x=2 y=2", "x=3 y=3"}},
		"replaced": {`batch["a"] = [0] * len(batch)`, []string{"a=0", "a=0", "a=0"}},
		"seen":     {`batch["x"] = list(map(str, dict(batch)["a"])); batch["y"] = ["x" in batch] * len(batch)`, []string{`x="1" y=true`, `x="2" y=true`, `x="3" y=true`}},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "def process(batch):\n    "+test.body+"\n    return batch")
			expect(t, k, []string{`{"a":1,"b":"x"}`, `{"a":2}`, `{"a":3,"b":"yz"}`}, test.want)
		})
	}
	k := start(t, "def process(batch):\n    batch['x'] = [1]\n    return batch", then(t, "def process(batch): return {'y': batch['x']}"))
	expect(t, k, []string{"{}"}, []string{"x=1 y=1"})
	for body, want := range map[string]string{
		"batch['x'] = [1]; batch[0]['y'] = 2; return batch": "set one or the other",
		"batch[0] = {}":                     "TypeError: set a column by its name, not by an int",
		"batch['x'] = [1, 2]; return batch": "process returned 2 values in column 'x' for 1 record",
	} {
		if _, err := call(t, start(t, "def process(batch): "+body), "{}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A batch as a table of a library, or a clear error without it.
func TestTables(t *testing.T) {
	for method, pack := range map[string]string{"to_pandas": "pandas", "to_arrow": "pyarrow"} {
		k := start(t, "import sys; sys.modules['"+pack+"'] = None\ndef process(batch): return {'x': [str(batch."+method+"())]}")
		if _, err := call(t, k, "{}"); err == nil || !strings.Contains(err.Error(), "batch."+method+"() needs "+pack) || !strings.Contains(err.Error(), "-m pip install "+pack) {
			t.Errorf("%v", err)
		}
	}
	records := []string{`{"a":1,"v":[1,2]}`, `{"a":2,"v":[3,4],"t":"x"}`}
	for name, body := range map[string]string{
		"pandas":  "frame = batch.to_pandas(); return {'x': frame['a'] * 2, 'n': [list(map(str, frame.columns))] * 2, 'v': [list(map(int, v)) for v in frame['v']], 't': frame['t'].isna()}",
		"pyarrow": "table = batch.to_arrow(); return {'x': [2 * a for a in table['a'].to_pylist()], 'n': [table.column_names] * 2, 'v': table['v'].to_pylist(), 't': [t is None for t in table['t'].to_pylist()]}",
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "def process(batch):\n    "+body, interpreter(withPackage(t, name)))
			expect(t, k, records, []string{`x=2 n=["a","v","t"] v=[1,2] t=true`, `x=4 n=["a","v","t"] v=[3,4] t=false`})
		})
	}
	k := start(t, "import pandas\ndef process(batch): return batch.to_pandas()", interpreter(withPackage(t, "pandas")))
	if _, err := call(t, k, "{}"); err == nil || !strings.Contains(err.Error(), `process returned a DataFrame: return the columns to add`) {
		t.Error(err)
	}
}
