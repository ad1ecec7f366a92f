package python_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// An endless iterator is read only until it has returned one result too many.
func TestEndlessResults(t *testing.T) {
	const once = "asked = 0\ndef endless():\n    global asked\n    while asked < 1000:\n        asked += 1\n        yield {'x': asked}\n"
	const thenCount = "\ndef process(batch):\n    if 'asked' in batch: return {'n': [asked]}\n    return "
	for name, test := range map[string]struct{ source, following, want string }{
		"records":           {"endless()", "", "process returned more than 1 result for 1 record"},
		"a column":          {"{'x': endless()}", "", "process returned more than 1 value in column 'x' for 1 record"},
		"a column of steps": {"{'x': endless()}", "def process(batch): return {'m': batch['n']}", "process returned more than 1 value in column 'x' for 1 record"},
	} {
		t.Run(name, func(t *testing.T) {
			source := once + thenCount + test.source
			k := start(t, source)
			if test.following != "" {
				k = start(t, source, then(t, test.following))
			}
			if _, err := call(t, k, "{}"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Error(err)
			}
			if got, err := call(t, k, `{"asked":true}`); err != nil || !strings.HasSuffix(got[0], "=2") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A column of numbers is an array in every batch, even if some are written as integers
// and others are not.
func TestNumbersWrittenInManyWays(t *testing.T) {
	numpy := withPackage(t, "numpy")
	const kinds = "import numpy\ndef process(batch): return {'x': [str(getattr(batch['x'], 'dtype', 'a list'))] * len(batch)}"
	kernels := map[string]plugins.Kernel{
		"as they came":  start(t, kinds, interpreter(numpy)),
		"after another": start(t, "def process(batch): return [dict(r) for r in batch]", then(t, kinds), interpreter(numpy)),
	}
	for records, want := range map[string]string{
		`1 2`:                       "int64",
		`1.5 2.5`:                   "float64",
		`1 2.5`:                     "float64",
		`1 1e400`:                   "float64",
		`true false`:                "bool",
		`1 true`:                    "a list",
		`1 null`:                    "a list",
		`9223372036854775808 -1`:    "a list",
		`9223372036854775808 9e400`: "float64",
	} {
		lines := strings.Fields(records)
		for i, value := range lines {
			lines[i] = `{"x":` + value + `}`
		}
		for name, k := range kernels {
			got, err := call(t, k, lines...)
			if err != nil || !strings.Contains(got[0], want) {
				t.Errorf("%s, %s: %q, not %s, %v", records, name, got, want, err)
			}
		}
	}
}

// A default for missing values does not change the type of a column.
func TestDefaultsAmongNumbers(t *testing.T) {
	numpy := withPackage(t, "numpy")
	for _, inputs := range []string{"", "inputs = {'x': 'numpy'}\n"} {
		k := start(t, "import numpy\n"+inputs+"def process(batch): return {'y': batch.get('x', 0.5) * 2}", interpreter(numpy))
		expect(t, k, []string{`{"x":1.5}`, `{"x":2.5}`}, []string{"y=3.0", "y=5.0"})
		expect(t, k, []string{`{"x":1.5}`, `{}`, `{"x":2}`}, []string{"y=3.0", "y=1.0", "y=4.0"})
	}
	k := start(t, "inputs = {'x': 'numpy'}\ndef process(batch): return {'y': batch['x'].sum(1)}", interpreter(numpy))
	if _, err := call(t, k, `{"x":[1,2]}`, `{"x":[3]}`); err == nil || !strings.Contains(err.Error(), "must hold the same number of numbers in every record") {
		t.Error(err)
	}
}

// An async function of a batch kernel would do nothing, since the runner does not await it.
func TestAsync(t *testing.T) {
	const want = " is async, but gpurun does not await it"
	if _, err := try(t, "async def setup(ctx): pass\ndef process(batch): return batch"); err == nil || !strings.Contains(err.Error(), "setup"+want) {
		t.Error(err)
	}
	for name, source := range map[string]string{
		"prepare": "async def prepare(batch): return batch\ndef process(batch): return {}",
	} {
		if _, err := call(t, start(t, source), "{}"); err == nil || !strings.Contains(err.Error(), name+want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := try(t, "async def process(record): yield 1"); err == nil || !strings.Contains(err.Error(), "must return its result, not yield it") {
		t.Error(err)
	}
	for _, source := range []string{"async def process(batch): return {}", "class process:\n async def __call__(self, batch): return {}"} {
		if _, err := try(t, source); err == nil || !strings.Contains(err.Error(), "gets one record at a time, not a batch") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// Characters that the log's encoding lacks are escaped.
func TestPrintAnything(t *testing.T) {
	t.Setenv("PYTHONIOENCODING", "ascii")
	k := start(t, `def process(batch): print("\xe9 \ud800"); return batch`)
	expect(t, k, []string{"{}"}, []string{"unchanged"})
}

// A forked child can read what its parent had read, and gets an error if it reads more.
func TestForkedReader(t *testing.T) {
	const source = `
import os, pickle
%s
def process(batch):
    read, write = os.pipe()
    if os.fork() == 0:
        def look(row): return batch[row]["a"]
        try: answer = str(look(0))
        except BaseException as error: answer = str(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.wait()
    return {"x": [os.read(read, 1000).decode()]}
`
	k := start(t, strings.ReplaceAll(source, "%s", ""))
	expect(t, k, []string{`{"a":5}`}, []string{`x="'a' cannot be read in a forked process: read it before forking, or list it in inputs = [...]"`})
	k = start(t, strings.ReplaceAll(source, "%s", "inputs = ['a']"))
	expect(t, k, []string{`{"a":5}`}, []string{`x="5"`})
	k = start(t, "import pickle\ndef process(batch): pickle.dumps(list(batch)), pickle.dumps(batch)")
	if _, err := call(t, k, "{}"); err == nil || !strings.Contains(err.Error(), "a batch cannot be copied or sent to another process") {
		t.Error(err)
	}
}

// The error of a torch DataLoader worker is reported by its cause.
func TestDataLoaderMessage(t *testing.T) {
	k := start(t, `def process(batch): raise ValueError("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File 'x'\nValueError: too short\n")`)
	if _, err := call(t, k, "{}"); err == nil || err.Error() != "ValueError: too short" {
		t.Error(err)
	}
}

// A column of bytes, some of which may be null, is base64 in lines.
func TestBytes(t *testing.T) {
	k := start(t, "def process(batch): return {'x': [b'a', None, b'', bytearray(b'bc')]}")
	expect(t, k, []string{"{}", "{}", "{}", "{}"}, []string{`x="YQ=="`, "x=null", `x=""`, `x="YmM="`})
}

// A function that is written for a record gets a batch, and the message says so.
func TestFunctionForRecords(t *testing.T) {
	for _, source := range []string{
		"return {'n': len(record['text'])}",
		"return {'n': record['text'].upper()}",
		"return {'n': record['text'] + '!'}",
		"return {'n': int(record['text'])}",
		"return {'n': record.text}",
		"record['n'] = 1; return record",
		"return len(record['text'])",
		"import re; return {'n': re.sub('a', 'b', record['text'])}",
	} {
		_, err := call(t, start(t, "def process(record): "+source), `{"text":"a"}`, `{"text":"b"}`)
		if err == nil || !strings.Contains(err.Error(), "the function gets a batch, not a record: ") {
			t.Errorf("%s: %v", source, err)
		}
	}
	k := start(t, "async def process(record): return {'n': record['tags'].upper()}")
	if _, err := call(t, k, `{"tags":[]}`); err != nil && strings.Contains(err.Error(), "gets a batch") {
		t.Error(err)
	}
	if _, err := call(t, start(t, "def process(batch): raise TypeError('no text')"), "{}"); err == nil || strings.Contains(err.Error(), "gets a batch") {
		t.Error(err)
	}
}

// Images arrive as the bytes of their files.
func TestBytesForImages(t *testing.T) {
	_, err := call(t, start(t, "def process(batch): return {'n': [b'a'.size for _ in batch]}"), "{}")
	if err == nil || !strings.Contains(err.Error(), "images and sounds arrive as the bytes of their files: PIL.Image.open") {
		t.Error(err)
	}
}
