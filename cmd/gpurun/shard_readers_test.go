package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/internal/crash"
)

// vectorKernel returns typed columns; one record fails.
const vectorKernel = `
import numpy

def process(batch):
    ids = numpy.asarray(batch["id"])
    if 41 in ids:
        raise ValueError("bad record")
    return {"vector": numpy.stack([ids, ids * 0.5], axis=1).astype(numpy.float32), "half": [int(i) // 2 for i in ids]}
`

// compareTables compares the outputs of shards with those of one machine, as other programs read them.
const compareTables = `
import numpy, pyarrow.dataset, pyarrow.parquet as parquet

one = parquet.read_table("one.parquet")
assert one.num_rows == 60 and parquet.ParquetFile("out.parquet").num_row_groups > 1
merged = parquet.read_table("out.parquet")
assert merged.schema.equals(one.schema, check_metadata=True), merged.schema
errors = lambda t: [e is not None for e in t.column("_error").to_pylist()]
assert errors(merged) == errors(one) and sum(errors(one)) == 1
assert merged.drop_columns("_error").equals(one.drop_columns("_error"))
folder = pyarrow.dataset.dataset("table").to_table()
assert folder.select(["id", "half"]).equals(one.select(["id", "half"]))
assert folder.column("vector").to_pylist() == one.column("vector").to_pylist()
for name in ["vector.npy", "vector.mask.npy"]:
    assert numpy.array_equal(numpy.load(name), numpy.load("one-" + name)), name
assert numpy.load("vector.npy").shape == (60, 2)
try:
    import duckdb
    assert duckdb.sql("select sum(id), count(vector) from 'table/*.parquet'").fetchall() == [(1770, 59)]
except ImportError:
    pass
try:
    import polars
    assert polars.read_parquet("table")["half"].to_list() == one.column("half").to_pylist()
except ImportError:
    pass
`

// TestShardReaders: what machines write together, one of which is killed, is to pyarrow, NumPy, and
// DuckDB and polars where they are installed, what one machine writes.
func TestShardReaders(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if prepared, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		python = cmp.Or(python, prepared)
	}
	if exec.Command(python, "-c", "import numpy, pyarrow").Run() != nil {
		t.Skip("SKIPPED: numpy or pyarrow is not installed (GPURUN_TEST_PYTHON names the interpreter): outputs of shards are not read with them")
	}
	d := newSharedFolder(t, 60)
	for name, text := range map[string]string{"vectors.py": vectorKernel, "compare.py": compareTables} {
		if err := os.WriteFile(d.join(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run := func(exit int, env []string, more ...string) {
		t.Helper()
		cmd, stderr := d.command(append(env, "PYTHONDONTWRITEBYTECODE=1"), append([]string{"run", "-k", "vectors.py", "--python", python, "in.jsonl"}, more...)...)
		start(t, cmd)
		ends(t, cmd, stderr, exit)
	}
	run(3, nil, "-o", "one.parquet")
	run(3, nil, "-o", "one.jsonl", "--column", "vector=one-vector.npy")
	run(-1, []string{crash.Variable + "=appended:4"}, "-o", "out.parquet", "--shard", "1/3")
	run(0, nil, "-o", "out.parquet", "--shard", "0/3", "--merge")
	run(0, nil, "-o", "table/", "--output-format", "parquet", "--shard", "0/3", "--merge")
	run(0, nil, "-o", "out.jsonl", "--column", "vector=vector.npy", "--shard", "0/3", "--merge")
	compare := exec.Command(python, "compare.py")
	compare.Dir = d.path
	if out, err := compare.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
