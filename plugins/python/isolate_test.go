package python_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// isolate computes a batch with time to isolate records.
func isolate(t testing.TB, k plugins.Kernel, limit time.Duration, records ...string) (*plugins.Results, error) {
	t.Helper()
	return plugins.Call(t.Context(), k, batch(records...).WithIsolation(limit))
}

// Records that raise fail alone, in one exchange, with what they raise alone; the others get
// the results that they get without them.
func TestRaisingRecordsAreIsolated(t *testing.T) {
	needPython(t)
	const helper = "def half(value):\n    if value % 7 == 3: raise ValueError('bad %d' % value)\n    return value / 2\n"
	var records []string
	for i := range 60 {
		record := fmt.Sprintf(`{"id":%d, "s":"%d","v":[%d]}`, i, i, i)
		if i%20 == 5 {
			record = fmt.Sprintf(`{"s":"%d"}`, i) // without id
		}
		records = append(records, record)
	}
	for name, test := range map[string]struct {
		source string
		then   []string
	}{
		"a loop over records":      {helper + "def process(batch):\n    return [{'h': half(r['id'])} for r in batch]", nil},
		"a column":                 {helper + "def process(batch):\n    return {'h': [half(int(s)) for s in batch['s']]}", nil},
		"a column that some lack":  {helper + "def process(batch):\n    return {'h': [half(i) for i in batch['id']]}", nil},
		"a generator":              {helper + "def process(batch):\n    for s in batch['s']: yield {'h': half(int(s))}", nil},
		"nested values":            {helper + "def process(batch):\n    return {'h': [half(sum(v)) for v in batch.get('v', [0])]}", nil},
		"changed records":          {helper + "def process(batch):\n    for r in batch:\n        r['s'] += '!'\n        r['h'] = half(r.get('id', 0))\n    return batch", nil},
		"a column of the batch":    {helper + "def process(batch):\n    batch['h'] = [half(int(s)) for s in batch['s']]\n    return batch", nil},
		"no trace of the record":   {"def process(batch):\n    n = [int(s) for s in batch['s']]\n    bad = sorted(x for x in n if x % 7 == 3)\n    del batch\n    if bad: raise ValueError('bad %d' % bad[0])\n    return {'n': n}", nil},
		"a misleading trace":       {"def process(batch):\n    first = batch[0]\n    n = [int(s) for s in batch['s']]\n    bad = sorted(x for x in n if x % 7 == 3)\n    if bad: raise ValueError('bad %d' % bad[0])\n    return {'n': n}", nil},
		"dropped, failed, several": {helper + "def process(batch):\n    out = []\n    for r in batch:\n        n = int(r['s'])\n        h = half(n)\n        out.append(None if n % 5 == 0 else KeyError(n) if n % 5 == 1 else [{'h': h}, {'h': n}] if n % 5 == 2 else r)\n    return out", nil},
		"columns of two types":     {helper + "def process(batch):\n    n = [half(int(s)) for s in batch['s']]\n    return {'n': n if len(n) > 30 else tuple(n), 'first': [str(x) for x in n]}", nil},
		"prepare":                  {helper + "def prepare(batch): return [half(int(s)) for s in batch['s']]\ndef process(prepared): return {'h': prepared}", nil},
		"raises in process":        {helper + "def prepare(batch): return [int(s) for s in batch['s']]\ndef process(batch, prepared): return {'h': [half(n) for n in prepared]}", nil},
		"all raise":                {"def process(batch): return [{'n': 1 / (int(r['s']) * 0)} for r in batch]", nil},
		"steps": {helper + "def process(batch): return {'n': [int(s) for s in batch['s']]}",
			[]string{helper + "def process(batch): return {'h': [half(n) for n in batch['n']]}"}},
		"steps that drop": {helper + "def process(batch): return [{'n': half(int(r['s']))} if int(r['s']) % 4 else None for r in batch]",
			[]string{"def process(batch): return [{'h': 1 / (r['n'] - 9)} for r in batch]"}},
		"a cause": {helper + "def process(batch):\n    out = []\n    for s in batch['s']:\n        try: out.append({'h': half(int(s))})\n        except ValueError as e: raise RuntimeError('no ' + s) from e\n    return out", nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, test.source, then(t, test.then...))
			results, err := isolate(t, k, time.Minute, records...)
			if err != nil {
				t.Fatalf("%v\n%s", err, detail(err))
			}
			if !results.Isolated() {
				t.Error("no record was isolated")
			}
			got := texts(results)
			for i, record := range records {
				alone, err := plugins.Call(t.Context(), k, batch(record))
				if err == nil {
					if want := texts(alone)[0]; got[i] != want || results.At(i).Raised != nil {
						t.Errorf("record %d: got %s, not %s", i, got[i], want)
					}
					continue
				}
				want, raised := fault.As(err), fault.As(results.At(i).Raised)
				if raised == nil || raised.Kind != fault.Batch || raised.Message != want.Message || raised.Step != want.Step {
					t.Errorf("record %d: got %s (%+v), not %+v", i, got[i], raised, want)
					continue
				}
				traced, whole, _ := strings.Cut(raised.Detail, "\nthe batch of 60 records failed with: ")
				if traced != want.Detail || whole == want.Message {
					t.Errorf("record %d: detail\n%s\nnot\n%s", i, raised.Detail, want.Detail)
				}
			}
		})
	}
}

// Without time to isolate, and if isolating does not help, the batch fails as it did.
func TestBatchFailsWithoutIsolation(t *testing.T) {
	needPython(t)
	var records []string
	for i := range 64 {
		records = append(records, fmt.Sprintf(`{"n":%d}`, i))
	}
	for name, test := range map[string]struct {
		body  string
		limit time.Duration
		kind  fault.Kind
		want  string
	}{
		"no time":                {"for n in batch['n']: 1 / (n - 3)", 0, fault.Batch, "ZeroDivisionError: division by zero"},
		"too slow":               {"import time; time.sleep(0.1)\n    for n in batch['n']: 1 / (n - 3)", 200 * time.Millisecond, fault.Batch, "ZeroDivisionError: division by zero"},
		"slow parts":             {"import time; time.sleep(0 if len(batch) == 64 else 0.05)\n    for n in batch['n']: 1 / (n % 2)", 200 * time.Millisecond, fault.Batch, "ZeroDivisionError: "},
		"whole batches only":     {"assert len(batch) <= 32, 'too many'", time.Minute, fault.Batch, "AssertionError: too many"},
		"device memory":          {"if len(batch) > 4: raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 MiB')", time.Minute, fault.OOM, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB"},
		"device memory of parts": {"if 1 < len(batch) < 64: raise RuntimeError('cudaErrorMemoryAllocation out of memory')\n    for n in batch['n']: 1 / (n - 3)", time.Minute, fault.OOM, "RuntimeError: cudaErrorMemoryAllocation out of memory"},
		"memory, in other words": {"if len(batch) == 1: raise RuntimeError('Error Code 2: OutOfMemory')\n    for n in list(batch['n']): 1 / (n - 3)", time.Minute, fault.OOM, "RuntimeError: Error Code 2: OutOfMemory"},
		"parts in other words":   {"a = sum(batch['n'])\n    if 16 < len(batch) < 64: raise RuntimeError('HIP out  of memory; cufft_alloc_failed')\n    assert 3 not in list(batch['n'])", time.Minute, fault.OOM, "RuntimeError: HIP out  of memory; cufft_alloc_failed"},
		"host memory":            {"if len(batch) > 4: raise MemoryError", time.Minute, fault.OOM, "MemoryError"},
		"a wrong number":         {"if len(batch) < 64: return []\n    for n in batch['n']: 1 / (n - 3)", time.Minute, fault.Incompatible, "process returned 0 results for 1 record"},
		"a wrong column":         {"if len(batch) < 64: return {'a': [1] * 7}\n    for n in batch['n']: 1 / (n - 3)", time.Minute, fault.Incompatible, "process returned 7 values in column 'a' for 1 record"},
		"exits":                  {"import sys; sys.exit(4)", time.Minute, fault.Batch, "the kernel called sys.exit(4)"},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, "def process(batch):\n    "+test.body+"\n    return [{}] * len(batch)")
			_, err := isolate(t, k, test.limit, records...)
			if fault.KindOf(err) != test.kind || !strings.HasPrefix(fmt.Sprint(err), test.want) {
				t.Errorf("got %v (%s)", err, fault.KindOf(err))
			}
			if strings.Contains(detail(err), "During handling") || test.kind != fault.Incompatible && !strings.Contains(detail(err), `kernel.py", line 2, in process`) && !strings.Contains(detail(err), `kernel.py", line 3, in process`) {
				t.Errorf("detail: %s", detail(err))
			}
		})
	}
}

// A loop that stops at its first bad record shows which one that is: most records are computed
// twice at most, however many are bad.
func TestIsolationComputesFewRecords(t *testing.T) {
	needPython(t)
	const n = 512
	var records []string
	for i := range n {
		records = append(records, fmt.Sprintf(`{"s":"%d"}`, i))
	}
	const source = `
calls = 0
def one(text):
    global calls
    calls += 1
    if text != "calls" and int(text) % 50 == 9: raise ValueError(text)
    return str(calls)
`
	for name, body := range map[string]string{
		"records": "def process(batch): return [{'calls': one(r['s'])} for r in batch]",
		"columns": "def process(batch): return {'calls': [one(s) for s in batch['s']]}",
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, source+body)
			if _, err := isolate(t, k, time.Minute, records...); err != nil {
				t.Fatal(err)
			}
			last, err := call(t, k, `{"s":"calls"}`)
			if err != nil {
				t.Fatal(err)
			}
			calls, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(strings.TrimPrefix(last[0], `{"calls":`), "calls="), `"}`))
			if err != nil || calls > 2*n+50 {
				t.Errorf("%s calls for %d records: %v", last[0], n, err)
			}
		})
	}
}
