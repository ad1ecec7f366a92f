package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// vectors returns a vector for each record, and obeys {"do":…} like labour.
type vectors struct {
	labour
	grids bool // also values with two dimensions
}

func (v *vectors) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	time.Sleep(time.Duration(v.config.Milliseconds) * time.Millisecond)
	width := 3
	var values, grids []float32
	labels := make([]string, batch.Len())
	grid := ""
	if v.grids {
		grid = `,"grid":[[1,2] , [3, null],[5,6]]`
	}
	for i := range batch.Len() {
		if i == batch.Len()/2 {
			crash.Point("kernel-mid-batch")
		}
		var record struct {
			ID    int
			Do    string
			Width int
		}
		_ = batch.Decode(i, &record)
		if record.Width > 0 && batch.Len() == 1 {
			width = record.Width
		}
		if record.Do == "slow" {
			time.Sleep(300 * time.Millisecond)
		}
		values = append(values, vectorOf(record.ID, width)...)
		grids = append(grids, vectorOf(record.ID, 6)...)
		labels[i] = fmt.Sprint("label ", record.ID)
		switch {
		case record.Do == "fail" && !v.config.Fixed:
			results.Fail(i, "rejected")
		case record.Do == "drop":
			results.Drop(i)
		case record.Do == "two":
			results.Lines(i, fmt.Appendf(nil, `{"id":%d,"vector":[1,2,3],"label":"one"}`, record.ID), fmt.Appendf(nil, `{"vector": [ 0.5,null,-1 ],"id":%d,"label":"two"%s}`, record.ID, grid))
		case record.Do == "lacks":
			results.Line(i, []byte(`{"id":1,"label":"x"}`))
		case record.Do == "odd":
			results.Line(i, []byte(`{"id":"not a number","vector":[1,2,3],"label":"x"}`))
		}
	}
	results.Column(plugins.Float32s("vector", width, values))
	results.Column(plugins.Strings("label", labels))
	if v.grids {
		results.Column(plugins.Float32s("grid", 6, grids).Shaped(3, 2))
	}
	return nil
}

// vectorOf is the vector of a record; JSON cannot represent some.
func vectorOf(id, width int) []float32 {
	values := make([]float32, width)
	for k := range values {
		values[k] = float32(id) + float32(k)/8
	}
	if id%10 == 1 {
		values[width-1] = float32(math.NaN())
	}
	return values
}

// TestArrays: row i of an array belongs to line i of the output, in every way to store lines.
func TestArrays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(d jobDir, c *orchestrator.Config)
	}{
		{"lines", func(jobDir, *orchestrator.Config) {}},
		{"errors apart", func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") }},
		{"half", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays[0].Path = d.join("v.f16.npy") }},
		{"parts", func(d jobDir, c *orchestrator.Config) { c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 3000 }},
		{"long units", func(_ jobDir, c *orchestrator.Config) { *c = orchestrator.WithUnitBytes(*c, 1<<20) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, mixed(400))
			c := orchestrator.WithUnitBytes(d.config("test-vectors"), 2000)
			c.Batching.Size = 16
			plain := c
			plain.Output.Path = d.join("plain.jsonl")
			c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
			test.change(d, &c)
			wanted := runBoth(t, d, plain, c)
			rows := loadArray(t, c.Output.Arrays[0].Path)
			mask := make([][]float64, len(rows))
			if c.Output.Errors == "" {
				mask = loadArray(t, strings.TrimSuffix(c.Output.Arrays[0].Path, ".npy")+".mask.npy")
			}
			within := 0.0
			if test.name == "half" {
				within = 0.125
			}
			checkAgree(t, wanted, len(rows), within, func(i int) []float64 {
				if mask[i] == nil || mask[i][0] == 0 {
					return rows[i]
				}
				if diff := differences([]float64{0, 0, 0}, rows[i]); diff != "" {
					t.Error(diff)
				}
				return nil
			})
			// The lines equal the other job's, without the column.
			text := ""
			for _, name := range []string{"out.jsonl", "out"} {
				paths, _ := filepath.Glob(d.join(name) + "/part-*")
				if len(paths) == 0 && exists(d.join(name)) {
					paths = []string{d.join(name)}
				}
				for _, path := range paths {
					data, _ := os.ReadFile(path)
					text += string(data)
				}
			}
			for _, line := range wanted {
				if line["_error"] == nil {
					delete(line, "vector")
				}
			}
			if diff := differences(wanted, outputLines(t, text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTables: a Parquet or Arrow output has the values of the same job as JSON lines.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		change  func(d jobDir, c *orchestrator.Config)
		columns []string
	}{
		{"all", func(jobDir, *orchestrator.Config) {}, []string{"id", "text", "do", "label", "vector", "grid", "_error"}},
		{"some", func(_ jobDir, c *orchestrator.Config) { c.Output.Columns = []string{"vector", "id:float64"} }, []string{"vector", "id", "_error"}},
		{"errors apart", func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") }, nil},
		{"parts", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.PartBytes = d.join("out.parquet")+"/", 5000
		}, nil},
		{"arrow", func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("out.arrow") }, []string{"id", "text", "do", "label", "vector", "grid", "_error"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, mixed(400))
			c := orchestrator.WithUnitBytes(d.config("test-grids"), 4000)
			c.Batching.Size = 16
			plain := c
			plain.Output.Path, c.Output.Path = d.join("plain.jsonl"), d.join("out.parquet")
			test.change(d, &c)
			wanted := runBoth(t, d, plain, c)
			paths, _ := filepath.Glob(d.join("out.parquet/part-*.parquet"))
			if test.name == "parts" && len(paths) < 3 {
				t.Fatalf("only %d parts: this test shows nothing", len(paths))
			}
			if len(paths) == 0 {
				paths = []string{c.Output.Path}
			}
			rows := tableLines(t, paths...)
			checkAgree(t, wanted, len(rows), 0, func(i int) []float64 {
				list, ok := rows[i]["vector"].([]any)
				if !ok {
					return nil
				}
				var values []float64
				for _, value := range list {
					number, ok := value.(float64)
					if !ok {
						number = math.NaN()
					}
					values = append(values, number)
				}
				return values
			})
			for i, row := range rows {
				for _, name := range []string{"id", "text", "label"} {
					if row[name] != nil && row[name] != wanted[i][name] {
						t.Fatalf("row %d: %s is %v, want %v", i, name, row[name], wanted[i][name])
					}
				}
				if diff := differences(wanted[i]["grid"], row["grid"]); diff != "" && row["grid"] != nil {
					t.Fatalf("row %d: %s", i, diff)
				}
				if failed := wanted[i]["_error"]; (failed != nil) != (row["_error"] != nil) {
					t.Fatalf("row %d: _error is %v, want %v", i, row["_error"], failed)
				}
			}
			if test.columns != nil && len(rows) > 0 {
				for _, name := range test.columns {
					if _, has := rows[0][name]; !has {
						t.Errorf("no column %s", name)
					}
				}
				if len(rows[0]) != len(test.columns) {
					t.Errorf("columns %v, want %v", rows[0], test.columns)
				}
			}
		})
	}
}

// TestMismatches: a result that does not fit in the layout fails its record, and nothing else.
func TestMismatches(t *testing.T) {
	t.Parallel()
	input := `{"id":0}
{"id":1,"width":4}
{"id":2,"do":"lacks"}
{"id":3}
{"id":4,"do":"odd"}
{"id":5,"extra":true}
`
	for _, name := range []string{"out.jsonl", "out.parquet"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, input)
			c := d.config("test-vectors")
			c.Output.Path, c.Batching.Size, c.Devices.GPUs = d.join(name), 1, "cpu:1"
			want := map[int]string{1: `kernel returned column "vector" as float32[4], but the output has float32[3]`}
			var messages map[int]string
			if name == "out.jsonl" {
				c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
				want[2] = `the result has no column "vector"`
			} else { // which has a null there
				want[4] = `column "id": "not a number" is not an int64`
			}
			mustRun(t, d, c)
			messages = make(map[int]string)
			for line := range strings.Lines(d.read(name + ".gpurun/failures.jsonl")) {
				var failure struct {
					Record  int
					Message string
				}
				if err := json.Unmarshal([]byte(line), &failure); err != nil {
					t.Fatal(err)
				}
				messages[failure.Record] = failure.Message
			}
			if diff := differences(want, messages); diff != "" {
				t.Error(diff)
			}
			if name == "out.parquet" {
				if rows := tableLines(t, d.join(name)); rows[2]["vector"] != nil || rows[2]["_error"] != nil || rows[3]["vector"] == nil {
					t.Errorf("%v", rows)
				}
			}
		})
	}
}

// TestFirstDecides: the first results in the order of the input decide the layout, also if
// others are faster.
func TestFirstDecides(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, `{"id":0,"do":"slow","width":5}`+"\n"+numbered(20))
	c := d.config("test-vectors")
	c.Batching.Size, c.Input.ChunkRecords, c.Devices.GPUs = 1, 1, "cpu:2"
	c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
	mustRun(t, d, c)
	if rows := loadArray(t, d.join("v.npy")); len(rows) != 21 || len(rows[0]) != 5 {
		t.Errorf("%v", rows)
	}
}

// TestColumnsRefused: what cannot work is refused before anything starts.
func TestColumnsRefused(t *testing.T) {
	t.Parallel()
	array := func(column, path string) []orchestrator.OutputArray {
		return []orchestrator.OutputArray{{Column: column, Path: path}}
	}
	for _, test := range []struct {
		name   string
		change func(d jobDir, c *orchestrator.Config)
		kind   fault.Kind
		want   string
	}{
		{"not an array", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("v", d.join("v.bin")) }, fault.Usage, "must end in .npy"},
		{"a mask", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("v", d.join("v.mask.npy")) }, fault.Usage, "the name of a mask"},
		{"the mark", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("_error", d.join("v.npy")) }, fault.Usage, "_error marks failed records"},
		{"twice", func(d jobDir, c *orchestrator.Config) {
			c.Output.Arrays = append(array("v", d.join("v.npy")), array("v", d.join("w.npy"))...)
		}, fault.Usage, `column "v" is stored as an array twice`},
		{"one file", func(d jobDir, c *orchestrator.Config) {
			c.Output.Arrays = append(array("v", d.join("v.npy")), array("w", d.join("v.npy"))...)
		}, fault.Usage, "the same file"},
		{"a stream", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Arrays = "-", array("v", d.join("v.npy"))
		}, fault.Usage, "needs an output file"},
		{"a table", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Arrays = d.join("out.parquet"), array("v", d.join("v.npy"))
		}, fault.Usage, "beside a table"},
		{"in the folder", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Arrays = d.join("out")+"/", array("v", d.join("out/v.npy"))
			if err := os.Mkdir(d.join("out"), 0o777); err != nil {
				d.t.Fatal(err)
			}
		}, fault.Usage, "is in the output folder"},
		{"exists", func(d jobDir, c *orchestrator.Config) {
			c.Output.Arrays = array("v", d.join("v.npy"))
			d.write("v.mask.npy", "x")
		}, fault.Usage, "already exists"},
		{"no folder", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("v", d.join("none/v.npy")) }, fault.Usage, "does not exist"},
		{"an unknown type", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Columns = d.join("out.parquet"), []string{"id:int"}
		}, fault.Usage, `unknown column type "int"`},
		{"columns of lines", func(_ jobDir, c *orchestrator.Config) { c.Output.Columns = []string{"id"} }, fault.Usage, "name it *.parquet"},
		{"a column twice", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Columns = d.join("out.parquet"), []string{"id", "id:int64"}
		}, fault.Usage, "named twice"},
		// Only the kernel's results show these.
		{"no such column", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("vektor", d.join("v.npy")) }, fault.Usage, `no column "vektor" for an array; its columns are ["vector" "label"]`},
		{"strings", func(d jobDir, c *orchestrator.Config) { c.Output.Arrays = array("label", d.join("v.npy")) }, fault.Usage, "as strings"},
		{"no such column of a table", func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.Columns = d.join("out.parquet"), []string{"id", "vektor"}
		}, fault.Usage, `the results have no column "vektor"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, numbered(20))
			c := d.config("test-vectors")
			test.change(d, &c)
			_, err := run(t, c)
			wantFault(t, err, test.kind, test.want)
		})
	}
}

// TestReaders: pyarrow, DuckDB, pandas and NumPy, and polars, DataFusion and Spark where they are
// installed, read the outputs and agree with the lines.
func TestReaders(t *testing.T) {
	t.Parallel()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import numpy, pyarrow, pandas, duckdb").Run(); err != nil {
		t.Skip("SKIPPED: numpy, pyarrow, pandas or duckdb is not installed (GPURUN_TEST_PYTHON names the interpreter): other readers of outputs are not tested")
	}
	d := newJobDir(t, mixed(400))
	for _, name := range []string{"out.jsonl", "out.parquet", "meta.jsonl"} {
		c := orchestrator.WithUnitBytes(d.config("test-grids"), 4000)
		c.Output.Path, c.Batching.Size = d.join(name), 16
		if name == "meta.jsonl" {
			c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
		}
		mustRun(t, d, c)
	}
	d.write("check.py", checkReaders)
	out, err := exec.Command(python, d.join("check.py"), d.path).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

const checkReaders = `
import json, os, sys
import duckdb, numpy as np, pandas as pd, pyarrow.parquet as pq
os.chdir(sys.argv[1])
lines = [json.loads(line) for line in open("out.jsonl")]
meta = [json.loads(line) for line in open("meta.jsonl")]
vectors, mask = np.load("v.npy"), np.load("v.mask.npy")
assert vectors.dtype == np.float32 and vectors.shape == (len(lines), 3), (vectors.dtype, vectors.shape)
assert len(meta) == len(mask) == len(lines)
file = pq.ParquetFile("out.parquet", page_checksum_verification=True)
assert file.metadata.num_row_groups > 3
element = file.schema_arrow.field("vector").type.value_field
assert str(element.type) == "float" and not element.nullable, element
assert str(file.schema_arrow.field("grid").type) == "list<element: list<element: float not null> not null>"
def spark():
    import pyspark.sql
    session = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    rows = [row.asDict() for row in session.read.parquet("out.parquet").collect()]
    session.stop()
    return rows
def datafusion():
    import datafusion
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.register_parquet("t", "out.parquet")
    return [row for batch in context.sql("select * from t").collect() for row in batch.to_pylist()]
def polars():
    import polars
    return polars.read_parquet("out.parquet").to_dicts()
duck = duckdb.sql("select * from 'out.parquet'")
readers = {
    "pyarrow": file.read().to_pylist(),
    "pandas": pd.read_parquet("out.parquet").to_dict("records"),
    "DuckDB": [dict(zip(duck.columns, row)) for row in duck.fetchall()],
}
for name, read in {"polars": polars, "DataFusion": datafusion, "Spark": spark}.items():
    try:
        readers[name] = read()
    except ModuleNotFoundError as missing:
        print("SKIPPED:", missing)
print("read by", ", ".join(readers))
for name, rows in readers.items():
    assert len(rows) == len(lines), (name, len(rows))
def same(vector, want):
    return np.array_equal(np.array(vector, dtype="f4"), np.array([np.nan if x is None else x for x in want], dtype="f4"), equal_nan=True)
for i, line in enumerate(lines):
    failed = "_error" in line
    assert mask[i] == failed and ("_error" in meta[i]) == failed
    if failed:
        assert not vectors[i].any()
    else:
        assert same(vectors[i], line["vector"]) and "vector" not in meta[i]
    for name, rows in readers.items():
        row, context = rows[i], (name, i, rows[i], line)
        if failed:
            assert row["vector"] is None and json.loads(row["_error"]) == line["_error"], context
            continue
        assert pd.isna(row["_error"]) and same(row["vector"], line["vector"]), context
        grid = line.get("grid")
        assert (row["grid"] is None) == (grid is None), context
        if grid:
            assert len(row["grid"]) == 3 and all(same(a, b) for a, b in zip(row["grid"], grid)), context
        assert row["id"] == line["id"] and row["label"] == line["label"], context
statistics = file.metadata.row_group(0).column(0).statistics
assert statistics.has_min_max and statistics.min >= 0
`

// TestDiskFullColumns: wherever the disk fills up, the same command completes the job once
// there is room, with the same bytes.
func TestDiskFullColumns(t *testing.T) {
	t.Parallel()
	half := rand.IntN(2) // of the pairs; make test-all runs both
	for i, v := range []*variant{derive("arrays"), derive("a table"), derive("tables")} {
		for k, free := range []int64{4 << 10, 40 << 10} {
			if (i+k)%2 != half && os.Getenv("GPURUN_TEST_ALL") == "" {
				continue
			}
			t.Run(fmt.Sprint(v.name, " ", free), func(t *testing.T) {
				t.Parallel()
				want := v.undisturbed(t)
				disk := jobDir{t: t, path: disktest.Mount(t, "4m")}
				_, c := v.start(t)
				v.change(disk, &c)
				ballast := disk.join("ballast")
				fill(t, ballast, free)
				fulls := 0
				for ; ; fulls++ {
					_, err := run(t, adapted(c))
					if err == nil {
						break
					}
					wantFault(t, err, fault.Storage, "no space left on device")
					if c.Output.PartBytes == 0 && exists(c.Output.Path) || fulls > 10 {
						t.Fatalf("after %d times: %v", fulls, err)
					}
					giveRoom(t, ballast, (16<<10)<<fulls)
				}
				if fulls == 0 {
					t.Error("the disk was never full: this test shows nothing")
				}
				got, wanted := results(disk, c), maps.Clone(want)
				delete(got, "failures.jsonl") // it names the input file
				delete(wanted, "failures.jsonl")
				if diff := differences(wanted, got); diff != "" {
					t.Errorf("differs from an undisturbed run: %s", diff)
				}
			})
		}
	}
}
