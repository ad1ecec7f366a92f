package orchestrator_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestDeclaredTypes: what passes from Parquet files to a Parquet file keeps its type and its
// value for pyarrow and DuckDB, also after a kill and a retry.
func TestDeclaredTypes(t *testing.T) {
	t.Parallel()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow, duckdb").Run(); err != nil {
		t.Skip("SKIPPED: pyarrow or duckdb is not installed (GPURUN_TEST_PYTHON names the interpreter): types that pass through a job are not tested")
	}
	d := newJobDir(t, "")
	script := func(name, text string) {
		t.Helper()
		d.write(name, text)
		if out, err := exec.Command(python, d.join(name), d.path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	script("make.py", makeTyped)
	config := func(output string, inputs ...string) orchestrator.Config {
		c := adapted(d.config("test-vectors"))
		c.Input.Path, c.Output.Path, c.Batching.Size = "", d.join(output), 64
		for _, name := range inputs {
			c.Input.Paths = append(c.Input.Paths, d.join(name))
		}
		return c
	}
	retried := config("retried.parquet", "in.parquet")
	mustRun(t, d, retried)
	script("check-failed.py", checkTyped+"check('in.parquet', 'retried.parquet', True)")
	retried.Kernel.Config = []byte(`{"Fixed":true}`)
	if _, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: retried.Output.Path}, Kernel: retried.Kernel, Devices: retried.Devices}); err != nil {
		t.Fatal(err)
	}
	script("check-retried.py", checkTyped+"check('in.parquet', 'retried.parquet', False)")

	whole, killed := config("whole.parquet", "part0.parquet", "part1.parquet"), config("killed.parquet", "part0.parquet", "part1.parquet")
	mustRun(t, d, whole)
	script("check-parts.py", checkTyped+"check('in.parquet', 'whole.parquet', True)")
	end := startDriver(t, driverOf(t, killed), "declared", "TMPDIR="+shortTemp(t), crash.Variable+"=unit-appended:2").wait(t)
	if !end.killed {
		t.Fatalf("the job was not killed: %s", end)
	}
	mustRun(t, d, killed)
	if d.read("whole.parquet") != d.read("killed.parquet") {
		t.Error("a job that was killed and resumed has another output")
	}
}

// makeTyped writes columns that are null in the rows from which types would be guessed.
const makeTyped = `
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
os.chdir(sys.argv[1])
rows = 1500
def column(type, value):
    return pa.array([None if i < 1100 or i % 7 == 0 else value(i) for i in range(rows)], type)
table = pa.table({
    "id": pa.array(range(rows), pa.int64()),
    "do": pa.array(["fail" if i % 100 == 3 else "go" for i in range(rows)]),
    "double": column(pa.float64(), float),
    "float": column(pa.float32(), lambda i: i / 3),
    "text": column(pa.string(), str),
    "bool": column(pa.bool_(), lambda i: i % 2 == 0),
    "bytes": column(pa.binary(), lambda i: bytes([i % 256, 0, 255])),
})
pq.write_table(table, "in.parquet", row_group_size=400)
pq.write_table(table.slice(0, 1200), "part0.parquet")
pq.write_table(table.slice(1200), "part1.parquet")
`

// checkTyped defines check(in, out, failed).
const checkTyped = `
import os, sys
import duckdb, pyarrow.parquet as pq
os.chdir(sys.argv[1])
def check(before, after, failed):
    a, b = pq.read_table(before), pq.read_table(after)
    assert b.column_names[:len(a.column_names)] == a.column_names, b.column_names
    for name in a.column_names:
        assert a[name].type == b[name].type, (name, a[name].type, b[name].type)
        assert a[name].equals(b[name]), (name, a[name], b[name])
    errors = sum(e is not None for e in b["_error"].to_pylist())
    assert (errors > 0) == failed, errors
    duck = lambda name: [c[:2] for c in duckdb.sql(f"describe from '{name}'").fetchall()]
    assert duck(before) == duck(after)[:len(a.column_names)], (duck(before), duck(after))
    columns = ", ".join('"' + name + '"' for name in a.column_names)
    differ = duckdb.sql(f"(select {columns} from '{before}') except all (select {columns} from '{after}')").fetchall()
    assert not differ, differ[:3]
    # Readers skip row groups by statistics: they must not exclude what is there.
    file = pq.ParquetFile(after)
    for g in range(file.metadata.num_row_groups):
        values = file.read_row_group(g)
        for k, name in enumerate(a.column_names):
            s = file.metadata.row_group(g).column(k).statistics
            present = [v for v in values[name].to_pylist() if v is not None]
            assert s.null_count == len(values) - len(present), (name, s)
            if s.has_min_max:
                assert present and (s.min, s.max) == (min(present), max(present)), (name, s, min(present), max(present))
`
