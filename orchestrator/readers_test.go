package orchestrator_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

// TestTextOfEveryReader: columns of JSON and of UUIDs are text for every reader, and gpurun itself
// reads JSON as what it is.
func TestTextOfEveryReader(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, `{"id":"00112233-4455-6677-8899-AABBCCDDEEFF","doc":{"a":[1]}}`+"\n"+`{"id":"00112233-4455-6677-8899-aabbccddeeff","doc":7}`+"\nnope\n")
	c := d.config("echo")
	c.Output.Path, c.Output.Columns = d.join("out.parquet"), []string{"id:uuid", "doc:json"}
	if report, err := run(t, c); err != nil || report.Failed != 1 {
		t.Fatalf("%v, %+v", err, report)
	}
	again := d.config("echo")
	again.Input.Path, again.Output.Path = d.join("out.parquet"), d.join("again.jsonl")
	mustRun(t, d, again)
	const id = `"id":"00112233-4455-6677-8899-aabbccddeeff",`
	if got, want := d.read("again.jsonl"), `{`+id+`"doc":{"a":[1]},"_error":null}`+"\n"+`{`+id+`"doc":7,"_error":null}`+"\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, `"_error":{"kind"`) {
		t.Errorf("read again: %s", got)
	}
	python := pythonReaders(t)
	d.write("check.py", checkText)
	if out, err := exec.Command(python, d.join("check.py"), d.join("out.parquet")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const checkText = `
import sys
import duckdb, pyarrow.parquet as pq
path = sys.argv[1]
columns = ["id", "doc", "_error"]
assert [str(t) for t in pq.read_schema(path).types] == ["string"] * 3, pq.read_schema(path)
assert [c[:2] for c in duckdb.sql(f"describe from '{path}'").fetchall()] == [(c, "VARCHAR") for c in columns]
try:
    import polars
    assert dict(polars.read_parquet_schema(path)) == {c: polars.String for c in columns}, polars.read_parquet_schema(path)
except ImportError:
    pass
`

// TestFoldersAreData: what is in a folder of parts is data for everyone who opens the folder as
// one table. make readers-test has all of these readers.
func TestFoldersAreData(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, mixed(400))
	for path, format := range map[string]string{"tables/": "parquet", "lines/": "jsonl"} {
		c := orchestrator.WithUnitBytes(d.config("test-grids"), 4000)
		c.Output.Path, c.Output.Format, c.Output.PartBytes, c.Batching.Size = d.join(path)+"/", format, 4000, 16
		mustRun(t, d, c)
		if names := tree(d.join(path)); len(names) < 3 || strings.Contains(strings.Join(names, " "), "manifest") {
			t.Errorf("in %s: %v", path, names)
		}
	}
	python := pythonReaders(t)
	d.write("check.py", checkFolders)
	out, err := exec.Command(python, d.join("check.py"), d.path).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

const checkFolders = `
import json, os, sys
import duckdb, pandas as pd, pyarrow.dataset as dataset, pyarrow.parquet as pq
os.chdir(sys.argv[1])
want = sum(1 for line in open("in.jsonl") if line.strip())
rows = {
    "pandas": lambda: len(pd.read_parquet("tables/")),
    "pyarrow": lambda: pq.read_table("tables/").num_rows,
    "pyarrow.dataset": lambda: dataset.dataset("tables/").count_rows(),
    "duckdb": lambda: len(duckdb.sql("select id from read_parquet('tables/*')").fetchall()),
    "duckdb, lines": lambda: len(duckdb.sql("select id from read_json_auto('lines/*')").fetchall()),
}
try:
    import polars
    rows["polars"] = lambda: polars.read_parquet("tables/").height
    rows["polars, lazily"] = lambda: polars.scan_parquet("tables/").collect().height
    rows["polars, lines"] = lambda: polars.scan_ndjson("lines/", infer_schema_length=None).collect().height
except ImportError:
    print("NOT TESTED: polars")
try:
    import datasets
    def load(*args, **options):
        return lambda: datasets.load_dataset(*args, **options, split="train", cache_dir="cache").num_rows
    rows["datasets"] = load("tables/")
    rows["datasets, by name"] = load("parquet", data_dir="tables/")
    rows["datasets, lines"] = load("json", data_dir="lines/")
except ImportError:
    print("NOT TESTED: datasets")
failed = False
for name, count in rows.items():
    try:
        got = count()
    except Exception as e:
        got = f"{type(e).__name__}: {e}"
    if got != want:
        print(f"{name}: {got} instead of {want} rows")
        failed = True
sys.exit(failed)
`

// TestColumnOrder: the columns of a kernel are in the order in which it returns them, whatever their
// types.
func TestColumnOrder(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(20))
	c := d.config("test-grids")
	c.Output.Path = d.join("out.parquet")
	mustRun(t, d, c)
	again := d.config("echo")
	again.Input.Path, again.Output.Path = c.Output.Path, d.join("again.jsonl")
	mustRun(t, d, again)
	line, _, _ := strings.Cut(d.read("again.jsonl"), "\n")
	vector, label, grid := strings.Index(line, `"vector"`), strings.Index(line, `"label"`), strings.Index(line, `"grid"`)
	if vector < 0 || label < vector || grid < label {
		t.Errorf("the columns are in another order: %s", line)
	}
}
