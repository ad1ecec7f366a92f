package orchestrator_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestDeclaredTypes: what passes from Parquet files to a Parquet file keeps its type and its
// value for pyarrow and DuckDB, also after a kill and a retry.
func TestDeclaredTypes(t *testing.T) {
	t.Parallel()
	python := pythonReaders(t)
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
import datetime, os, sys
from decimal import Decimal
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
    "int8": column(pa.int8(), lambda i: i % 256 - 128),
    "int16": column(pa.int16(), lambda i: -i),
    "int32": column(pa.int32(), lambda i: i * 1000000 * (-1) ** i),
    "uint8": column(pa.uint8(), lambda i: i % 256),
    "uint16": column(pa.uint16(), lambda i: 65535 - i),
    "uint32": column(pa.uint32(), lambda i: 2**32 - i if i % 2 else i),
    "uint64": column(pa.uint64(), lambda i: 2**64 - i if i % 2 else i),
    "date": column(pa.date32(), lambda i: datetime.date(1960, 2, 29) + datetime.timedelta(days=(i - 1300) * 300)),
    "ms": column(pa.timestamp("ms"), lambda i: (i - 1300) * 10**11 + i),
    "us": column(pa.timestamp("us", "UTC"), lambda i: (i - 1300) * 10**13 + i),
    "ns": column(pa.timestamp("ns"), lambda i: [-2**63 + 1, 2**63 - 1, -1, 1, (i - 1300) * 10**15 + i][i % 5]),
    "nsutc": column(pa.timestamp("ns", "UTC"), lambda i: (i - 1300) * 10**15 + i),
    "timems": column(pa.time32("ms"), lambda i: i * 57000),
    "timeus": column(pa.time64("us"), lambda i: i * 57000001),
    "timens": column(pa.time64("ns"), lambda i: i * 57000000001),
    "decimal": column(pa.decimal128(38, 10), lambda i: Decimal("12345678901234567890.12345679%02d" % (i % 100)) * (-1) ** i),
    "cents": column(pa.decimal128(5, 2), lambda i: Decimal(i - 1300) / 4),
    "whole": column(pa.decimal128(18, 0), lambda i: Decimal(10**18 - i) * (-1) ** i),
    "tiny": column(pa.decimal128(4, 4), lambda i: Decimal(1300 - i) / 10000),
    "wide": column(pa.decimal256(76, 4), lambda i: Decimal("9" * 60 + ".%04d" % i).copy_sign(1300 - i)),
    "fixed": column(pa.binary(3), lambda i: bytes([i % 256, 0, 255])),
    "bytes": column(pa.binary(), lambda i: bytes([i % 256, 0, 255])),
    "file": column(pa.struct([("path", pa.string()), ("bytes", pa.binary())]), lambda i: {"bytes": None if i % 15 == 0 else b"x" * i, "path": None if i % 5 == 0 else str(i)}),
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
    works = [i for i, e in enumerate(b["_error"].to_pylist()) if e is None]
    assert b.column_names[:len(a.column_names)] == a.column_names, b.column_names
    for name in a.column_names:
        assert a[name].type == b[name].type, (name, a[name].type, b[name].type)
        if name in ("fixed", "bytes", "file"): # which the row of a failed record lacks
            assert a[name].take(works).equals(b[name].take(works)), (name, a[name], b[name])
        else:
            assert a[name].equals(b[name]), (name, a[name], b[name])
    assert (len(works) < len(a)) == failed, len(works)
    duck = lambda name: [c[:2] for c in duckdb.sql(f"describe from '{name}'").fetchall()]
    assert duck(before) == duck(after)[:len(a.column_names)], (duck(before), duck(after))
    columns = ", ".join('"' + name + '"' for name in a.column_names)
    differ = duckdb.sql(f"(select {columns} from '{before}' where id in {tuple(works)}) except all (select {columns} from '{after}')").fetchall()
    assert not differ, differ[:3]
    # Readers skip row groups by statistics: they must not exclude what is there.
    file = pq.ParquetFile(after)
    for g in range(file.metadata.num_row_groups):
        values = file.read_row_group(g)
        for k, name in enumerate(a.column_names[:-1]):
            s = file.metadata.row_group(g).column(k).statistics
            present = [v for v in values[name].to_pylist() if v is not None]
            assert s.null_count == len(values) - len(present), (name, s)
            if s.has_min_max:
                assert present and (s.min, s.max) == (min(present), max(present)), (name, s, min(present), max(present))
`

// TestDeclaredColumns: a kernel's member has its own type; files that disagree, empty files, and
// a retry of a job without any result.
func TestDeclaredColumns(t *testing.T) {
	t.Parallel()
	python := pythonReaders(t)
	d := newJobDir(t, `{"id":1,"day":"1969-12-31","dec":"-1.50","n":18446744073709551615}`+"\n"+`{"id":2,"day":"no day","dec":1.505,"n":1}`+"\n"+`{"id":3,"day":null,"dec":1.505,"n":1}`+"\n")
	script := func(name, text string) {
		t.Helper()
		d.write(name, text)
		if out, err := exec.Command(python, d.join(name), d.path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	script("make.py", `
import datetime, os, sys
import pyarrow as pa, pyarrow.parquet as pq
os.chdir(sys.argv[1])
day = datetime.date(1900, 1, 1)
def write(name, x, rows, do):
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int16()), "x": pa.array([1] * rows, x), "day": pa.array([day] * rows, pa.date32()), "label": pa.array([1] * rows, pa.int32()),
        "tags": pa.array([["a", None]] * rows, pa.list_(pa.string())), "do": pa.array([do] * rows, pa.string())}), name)
write("a.parquet", pa.int32(), 3, "go")
write("b.parquet", pa.int64(), 3, "go")
write("empty.parquet", pa.int32(), 0, "go")
write("fails.parquet", pa.int32(), 3, "fail")
`)
	var notes []string
	job := func(output string, inputs ...string) orchestrator.Config {
		c := d.config("test-vectors")
		c.Output.Path, c.Batching.Size = d.join(output), 64
		for _, name := range inputs {
			c.Input.Paths = append(c.Input.Paths, d.join(name))
		}
		c.Display.OnEvent = func(e orchestrator.Event) {
			if notice, ok := e.(orchestrator.Notice); ok {
				notes = append(notes, notice.Text)
			}
		}
		return c
	}
	mustRun(t, d, job("differ.parquet", "a.parquet", "b.parquet"))
	if text := strings.Join(notes, "\n"); !strings.Contains(text, `"tags" (list) becomes json`) || !strings.Contains(text, `"x" is int32 in `) || strings.Contains(text, "day") {
		t.Errorf("notices: %s", text)
	}
	mustRun(t, d, job("empty-out.parquet", "empty.parquet"))
	failed := job("fails-out.parquet", "fails.parquet")
	mustRun(t, d, failed)
	if _, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: failed.Output.Path}, Kernel: orchestrator.Kernel{Config: []byte(`{"Fixed":true}`)}, Devices: failed.Devices}); err != nil {
		t.Fatal(err)
	}
	chosen := job("chosen.parquet", "in.jsonl")
	chosen.Output.Columns = []string{"id:uint8", "day:date", "dec:decimal(5,2)", "n:uint64", "label"}
	mustRun(t, d, chosen)
	script("check.py", `
import os, sys
import pyarrow.parquet as pq
os.chdir(sys.argv[1])
def types(name, *wanted):
    schema = pq.read_schema(name)
    got = {n: str(schema.field(n).type) for n in schema.names}
    for text in wanted:
        n, _, want = text.partition(":")
        assert got[n] == want, (name, n, got)
    return pq.read_table(name).to_pylist()
common = ["id:int16", "day:date32[day]"]
rows = types("differ.parquet", *common, "x:int64", "label:string")
assert [r["x"] for r in rows] == [1] * 6 and rows[5]["label"] == "label 2", rows
types("empty-out.parquet", *common, "x:int32", "label:int32")
rows = types("fails-out.parquet", *common, "x:int32", "label:string")
assert [(r["id"], str(r["day"]), r["label"], r["_error"]) for r in rows] == [(i, "1900-01-01", f"label {i}", None) for i in range(3)], rows
rows = types("chosen.parquet", "id:uint8", "day:date32[day]", "dec:decimal128(5, 2)", "n:uint64")
assert str(rows[0]["day"]) == "1969-12-31" and str(rows[0]["dec"]) == "-1.50" and rows[0]["n"] == 2**64 - 1 and rows[0]["_error"] is None, rows
assert '"no day\\" is not a date' in rows[1]["_error"] and rows[1]["id"] == 2 and rows[1]["day"] is None, rows
assert "1.505 is not a decimal(5,2): it has more than 2 digits after the point" in rows[2]["_error"], rows
`)
}

// pythonReaders returns a Python that can read and write Parquet files.
func pythonReaders(t *testing.T) string {
	t.Helper()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow, pandas, duckdb").Run(); err != nil {
		t.Skip("SKIPPED: pyarrow, pandas or duckdb is not installed (GPURUN_TEST_PYTHON names the interpreter): types that pass through a job are not tested")
	}
	return python
}
