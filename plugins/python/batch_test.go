package python_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

func detail(err error) string {
	if e := fault.As(err); e != nil {
		return e.Detail
	}
	return ""
}

func TestConformance(t *testing.T) {
	needPython(t)
	for name, source := range map[string]string{
		"records": "def process(batch):\n    for r in batch: r['length'] = len(r['text'])\n    return batch",
		"lines":   "def process(batch): return [dict(r, n=1) for r in batch]",
		"prepare": "def prepare(batch): return [t.upper() for t in batch['text']]\ndef process(texts): return {'upper': texts}",
	} {
		t.Run(name, func(t *testing.T) {
			session := kerneltest.NewSession(kerneltest.Loopback(python.New), kerneltest.Options{
				Config: config(t, resolve.PythonConfig{File: write(t, source)}), LargeBatch: 300,
			})
			defer session.Close()
			for _, check := range kerneltest.Checks() {
				if check.Opened { // the others are the same for all files
					if outcome := session.Run(t.Context(), check); outcome.Err != nil {
						t.Error(outcome)
					}
				}
			}
		})
	}
	t.Run("columns", func(t *testing.T) {
		kerneltest.Run(t, python.New, kerneltest.Options{
			Config: config(t, resolve.PythonConfig{File: write(t, "def process(batch): return {'length': [len(t) for t in batch['text']]}")}), LargeBatch: 300,
		})
	})
	t.Run("binary", func(t *testing.T) {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(kernelVariable, "python")
		kerneltest.RunBinary(t, process.Command{Path: path, SocketDir: t.TempDir()}, kerneltest.Options{
			Config: config(t, resolve.PythonConfig{File: write(t, "def process(batch): return {'again': batch['text']}")}),
		})
	})
}

// What a kernel sees of its records: each case is a kernel that returns the repr of an
// expression, so that types are checked too.
func TestWhatABatchIs(t *testing.T) {
	records := []string{
		`{"s":"a\u00e9\ud83d\ude00\"","i":1,"f":1.5,"m":1,"b":true,"v":[1,2],"w":[1,0.5],"j":{"x":[1]},"n":null}`,
		`{"s":"","i":-9007199254740993,"f":2e3,"m":0.5,"b":false,"v":[-3,4],"w":[0,1e-3],"j":"q","n":"x"}`,
	}
	expressions := map[string]string{
		`batch["s"]`:                             `['aé😀"', '']`,
		`batch["i"]`:                             `[1, -9007199254740993]`,
		`batch["f"]`:                             `[1.5, 2000.0]`,
		`batch["m"]`:                             `[1, 0.5]`,
		`batch["b"]`:                             `[True, False]`,
		`batch["v"]`:                             `[[1, 2], [-3, 4]]`,
		`batch["w"]`:                             `[[1.0, 0.5], [0.0, 0.001]]`,
		`batch["j"]`:                             `[{'x': [1]}, 'q']`,
		`batch["n"]`:                             `[None, 'x']`,
		`len(batch)`:                             `2`,
		`batch[1]["f"]`:                          `2000.0`,
		`batch[-1]["s"]`:                         `''`,
		`[r["i"] for r in batch[1:]]`:            `[-9007199254740993]`,
		`[r["m"] for r in batch]`:                `[1, 0.5]`,
		`"s" in batch`:                           `True`,
		`"zz" in batch`:                          `False`,
		`batch.get("zz", 7)`:                     `[7, 7]`,
		`batch[0].get("zz", 7)`:                  `7`,
		`"zz" in batch[0]`:                       `False`,
		`list(batch[1])`:                         `['s', 'i', 'f', 'm', 'b', 'v', 'w', 'j', 'n']`,
		`{**batch[1], "s": 1}["s"]`:              `1`,
		`dict(batch[0])["j"]`:                    `{'x': [1]}`,
		`(batch[0] | {"q": 1})["q"]`:             `1`,
		`__import__("json").dumps(batch[1])[:8]`: `'{"s": ""'`,
		`__import__("copy").deepcopy(batch[0])["i"]`:                                      `1`,
		`type(__import__("pickle").loads(__import__("pickle").dumps(batch[0]))).__name__`: `'dict'`,
		`batch["s"] is batch["s"]`:                                                        `True`,
	}
	encoded, err := json.Marshal(slices.Collect(maps.Keys(expressions)))
	if err != nil {
		t.Fatal(err)
	}
	k := start(t, `
def setup(ctx):
    global expressions
    expressions = ctx.config
def process(batch):
    return {expression: [repr(eval(expression))] * len(batch) for expression in expressions}
`, func(c *resolve.PythonConfig) { c.Config = encoded })
	for range 2 { // the second batch includes the fields
		results, err := plugins.Call(t.Context(), k, batch(records...))
		if err != nil {
			t.Fatalf("%v\n%s", err, detail(err))
		}
		for _, column := range results.ColumnList() {
			want := string(plugins.Strings("", []string{expressions[column.Name]}).AppendValue(nil, 0))
			if got := string(column.AppendValue(nil, 0)); got != want {
				t.Errorf("%s: got %s, not %s", column.Name, got, want)
			}
		}
	}
}

// Every form of result.
func TestResults(t *testing.T) {
	two := []string{`{"a":1, "b":[2]}`, `{"a":2}`}
	tests := map[string]struct {
		body string
		want []string
	}{
		"strings":        {`return {"x": ["é\n", "b"]}`, []string{`x="é\n"`, `x="b"`}},
		"whole numbers":  {`return {"x": [1, 2]}`, []string{"x=1", "x=2"}},
		"fractions":      {`return {"x": [0.1, 2.0]}`, []string{"x=0.1", "x=2.0"}},
		"bools":          {`return {"x": (True, False)}`, []string{"x=true", "x=false"}},
		"vectors":        {`return {"x": [[1.5, 2.0], [3.0, 4.0]]}`, []string{"x=[1.5,2.0]", "x=[3.0,4.0]"}},
		"ragged":         {`return {"x": [[1], [2, 3]]}`, []string{"x=[1]", "x=[2,3]"}},
		"empty lists":    {`return {"x": [[], []]}`, []string{"x=[]", "x=[]"}},
		"huge numbers":   {`return {"x": [2**70, 1]}`, []string{"x=1180591620717411303424", "x=1"}},
		"mixed":          {`return {"x": [None, {"k": "v"}]}`, []string{"x=null", `x={"k":"v"}`}},
		"two columns":    {`return {"x": [1, 2], "y": ["a", "b"]}`, []string{`x=1 y="a"`, `x=2 y="b"`}},
		"an iterator":    {`return {"x": map(str, [1, 2])}`, []string{`x="1"`, `x="2"`}},
		"not finite":     {`return {"x": [float("nan"), float("-inf")]}`, []string{"x=null", "x=null"}},
		"nested NaN":     {`return {"x": [{"y": [float("nan"), 1]}, 2]}`, []string{`x={"y":[null,1]}`, "x=2"}},
		"no columns":     {`return {}`, []string{"unchanged", "unchanged"}},
		"one fails":      {`return {"x": [ValueError("too short"), 2]}`, []string{"failed: ValueError: too short", "x=2"}},
		"dicts":          {`return [{"x": r["a"]} for r in batch]`, []string{`{"x":1}`, `{"x":2}`}},
		"a generator":    {"for r in batch: yield {\"x\": r[\"a\"]}", []string{`{"x":1}`, `{"x":2}`}},
		"drop and fail":  {`return [None, KeyError("q")]`, []string{"drop", "failed: KeyError: 'q'"}},
		"several lines":  {`return [[{"x": 1}, {"x": 2}], []]`, []string{`{"x":1}+{"x":2}`, "drop"}},
		"itself":         {`return batch`, []string{"unchanged", "unchanged"}},
		"some of it":     {`return [r if r["a"] == 1 else None for r in batch]`, []string{"unchanged", "drop"}},
		"changed":        {"for r in batch: r['a'] += 1\n    return batch", []string{`{"a":2, "b":[2]}`, `{"a":3}`}},
		"added":          {"for r in batch: r['c'] = 'x'\n    return batch", []string{`{"a":1, "b":[2],"c":"x"}`, `{"a":2,"c":"x"}`}},
		"changed inside": {"batch[0]['b'].append(3)\n    return batch", []string{`{"a":1, "b":[2,3]}`, "unchanged"}},
		"changed in all": {"dict(batch[0])\n    batch[0]['b'].append(3)\n    return batch", []string{`{"a":1, "b":[2,3]}`, "unchanged"}},
		"only looked at": {"list(batch[0].items())\n    return batch", []string{"unchanged", "unchanged"}},
		"removed":        {"del batch[0]['b']\n    return batch", []string{`{"a":1}`, "unchanged"}},
		"its own member": {`return {"a": [x + 1 for x in batch["a"]]}`, []string{"a=2", "a=3"}},
		"no JSON":        {`return {"x": [{1, 2}, 3]}`, []string{"failed: column 'x': TypeError: a set is not a JSON value: return a sorted list", "x=3"}},
		"no name":        {`return [{1: 2}, {"x": 3}]`, []string{"failed: TypeError: member name 1 is not a string", `{"x":3}`}},
		"surrogate":      {`return {"x": ["\ud800", "b"]}`, []string{`x="\ud800"`, `x="b"`}},
		"circular":       {"x = []; x.append(x)\n    return {'x': [x, 1]}", []string{"failed: column 'x': ValueError: Circular reference detected", "x=1"}},
		"another order":  {"return batch[::-1]", []string{`{"a":2}`, `{"a":1, "b":[2]}`}},
		"sorted, changed": {"for r in batch: r['of'] = r['a']\n    return sorted(batch, key=lambda r: -r['a'])",
			[]string{`{"a":2,"of":2}`, `{"a":1,"b":[2],"of":1}`}},
		"twice the same":  {"return [batch[0], batch[0]]", []string{"unchanged", `{"a":1, "b":[2]}`}},
		"one and another": {"return [[r, {'x': 1}] for r in batch]", []string{`{"a":1, "b":[2]}+{"x":1}`, `{"a":2}+{"x":1}`}},
		"a column inside": {"for b in batch.get('b', []): b.append(3)\n    return batch", []string{"unchanged", "unchanged"}},
	}
	bodies := make(map[string]string)
	for name, test := range tests {
		bodies[name] = test.body
	}
	k := start(t, cases(bodies))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			use(t, k, name)
			expect(t, k, two, test.want)
		})
	}
}

// An invalid result of process fails the batch with the reason.
func TestUnusableResults(t *testing.T) {
	tests := map[string]string{
		`pass`:                         "process returned None",
		`return 5`:                     "process returned an int: return a dict of columns",
		`return [1, 2]`:                "process returned an int for a record",
		`return [{"a": 1}]`:            "process returned 1 result for 2 records",
		`return {"x": [1]}`:            "process returned 1 value in column 'x' for 2 records",
		`return {"x": "ab"}`:           "column 'x' is a str, not a list of 2 values",
		`return {"x": {1, 2}}`:         "column 'x' is a set, not a list of 2 values",
		`return {"x": 3}`:              "column 'x' is an int, not a list of 2 values",
		`return {3: [1, 2]}`:           "process returned a column named 3: column names must be strings",
		`return [[{"a": 1}, 2], None]`: "process returned an int among the lines of a record",
		`return batch[0]`:              "process returned a Record",
		`return batch["a"][0]["b"]`:    "TypeError: 'int' object is not subscriptable",
		`raise OSError("two\nlines")`:  "OSError: two",
		`import sys; sys.exit(3)`:      "the kernel called sys.exit(3)",
		`raise KeyboardInterrupt`:      "KeyboardInterrupt",
		`batch[0]["zz"]`:               "KeyError: 'zz'",
		`batch[9]`:                     "IndexError: list index out of range",
		`batch[1.5]`:                   "TypeError: list indices must be integers or slices, not float",
	}
	bodies := make(map[string]string)
	for body := range tests {
		bodies[body] = "if len(batch) == 1: return batch\n    " + body
	}
	k := start(t, cases(bodies))
	for body, want := range tests {
		t.Run(body, func(t *testing.T) {
			use(t, k, body)
			_, err := call(t, k, `{"a":1}`, `{"a":2}`)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, not %s", err, want)
			}
			kind := fault.Batch
			if strings.Contains(want, "for 2 records") { // a wrong number of results
				kind = fault.Incompatible
			}
			if fault.KindOf(err) != kind || strings.Contains(detail(err), "gpurun") {
				t.Errorf("%s: %s", fault.KindOf(err), detail(err))
			}
			expect(t, k, []string{`{"a":1}`}, []string{"unchanged"}) // the kernel still works
		})
	}
}

// cases is a kernel with many bodies of process, so that one interpreter serves all
// tests; use selects one.
func cases(bodies map[string]string) string {
	var source strings.Builder
	source.WriteString("bodies, body = {}, None\n")
	for name, body := range bodies {
		fmt.Fprintf(&source, "def process(batch):\n    %s\nbodies[%q] = process\n", body, name)
	}
	source.WriteString(`
def process(batch):
    global body
    if "use body" in batch:
        body = bodies[batch["use body"][0]]
        return {}
    return body(batch)
`)
	return source.String()
}

func use(t *testing.T, k plugins.Kernel, name string) {
	t.Helper()
	record, err := json.Marshal(map[string]string{"use body": name})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, k, []string{string(record)}, []string{"unchanged"})
}

// A record that lacks a member which the kernel reads as a column fails alone.
func TestMissingMember(t *testing.T) {
	records := []string{`{"text":"a"}`, `{"id":1}`, `{"text":null}`, `[1]`, `{"text":"b","id":2}`}
	missing := `failed: the record has no member "text"`
	for name, source := range map[string]string{
		"column":    "def process(batch): return {'x': batch['text']}",
		"declared":  "inputs = ['text']\ndef process(batch): return {'x': batch['text']}",
		"prepared":  "def prepare(batch): return batch['text']\ndef process(texts): return {'x': texts}",
		"later":     "def prepare(batch): return batch\ndef process(batch): return {'x': batch['text']}",
		"generator": "def process(batch):\n    for t in batch['text']: yield {'x': t}",
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, source)
			for range 2 {
				want := []string{`x="a"`, missing, "x=null", missing, `x="b"`}
				if name == "generator" {
					want = []string{`{"x":"a"}`, missing, `{"x":null}`, missing, `{"x":"b"}`}
				}
				expect(t, k, records, want)
			}
			expect(t, k, []string{`{"id":1}`, `7`}, []string{missing, missing})
		})
	}
	t.Run("two of them", func(t *testing.T) {
		k := start(t, "def process(batch): return {'x': [a + b for a, b in zip(batch['a'], batch['b'])]}")
		expect(t, k, []string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`, `{}`},
			[]string{`failed: the record has no member "b"`, `failed: the record has no member "a"`, "x=3", `failed: the record has no member "a"`})
	})
	t.Run("with a default", func(t *testing.T) {
		k := start(t, "def process(batch): return {'x': batch.get('text', '-')}")
		expect(t, k, records[:2], []string{`x="a"`, `x="-"`})
	})
}

// Many fields, and whole records, are learned and sent with later batches.
func TestManyFields(t *testing.T) {
	k := start(t, `
def process(batch):
    return {"sum": [sum(column) for column in zip(*(batch["f%d" % i] for i in range(100)))], "n": [len(r) for r in batch]}
`)
	var members []string
	for i := range 100 {
		members = append(members, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	record := "{" + strings.Join(members, ",") + "}"
	for range 3 {
		expect(t, k, []string{record, record}, []string{"sum=4950 n=100", "sum=4950 n=100"})
	}
}
