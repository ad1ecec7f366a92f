package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/crash"
)

// pictureFeatures is what the input says about its columns.
const pictureFeatures = `
import json, pyarrow as pa, pyarrow.feather, pyarrow.parquet as parquet
FEATURES = {"image": {"_type": "Image"}, "last": {"names": [str(i) for i in range(60)], "_type": "ClassLabel"}, "gone": {"dtype": "int64", "_type": "Value"}}
`

// makePictures writes structs of bytes and path in both orders of their members, and plain bytes. All kinds of
// nulls are among them.
const makePictures = pictureFeatures + `

kinds = [("bytes", pa.binary()), ("path", pa.string())]
values = [{"bytes": b"\xff\0", "path": "a.png"}, None, {"bytes": None, "path": "picture"}, {"bytes": b"", "path": None}, {"bytes": None, "path": None}, {"bytes": b"x" * 99, "path": ""}]
values = [values[i % 6] if i % 7 else {"bytes": b"%d" % i, "path": "é/%d.png" % i} for i in range(60)]
for name, kind in [("in", pa.struct(kinds)), ("turned", pa.struct(kinds[::-1])), ("plain", pa.binary())]:
    column = pa.array([v and v["bytes"] for v in values] if name == "plain" else values, kind)
    table = pa.table({"id": range(60), "image": column, "last": pa.array(range(60), pa.int8())})
    if name != "plain":
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}, "fingerprint": "f"})})
    parquet.write_table(table, name + ".parquet", row_group_size=25)
    pyarrow.feather.write_feather(table, name + ".arrow", chunksize=25)
open("picture", "w").write("a file")
`

const measurePictures = `
import os

def process(batch):
    if os.environ.get("FAIL") and 14 in batch["id"]:
        raise ValueError("bad record")
    return {"size": [None if image is None else len(image) for image in batch["image"]]}
`

const replacePictures = `
def process(batch):
    return {"image": [b"new"] * len(batch)}
`

// checkPictures compares outputs with their inputs.
const checkPictures = pictureFeatures + `
def read(name):
    return parquet.read_table(name) if name.endswith(".parquet") else pyarrow.feather.read_table(name)

def described(table, *names):
    said = json.loads((table.schema.metadata or {}).get(b"huggingface", '{"info":{"features":{}}}'))["info"]["features"]
    assert said == {name: FEATURES[name] for name in names}, said

def same(output, before, failed=()):
    after, rows = read(output), before.num_rows
    after.validate(full=True)
    assert after.column_names == ["id", "image", "last", "size", "_error"], after.column_names
    described(after, "image", "last")
    kept = [i for i in range(rows) if i not in failed]
    for name in before.column_names:
        a, b = before[name], after[name]
        assert a.type == b.type, (output, name, b.type)
        assert a.take(kept).equals(b.take(kept)), (output, name, b)
    def size(v):
        if v is None or v["bytes"] is None:
            return len("a file") if v and v["path"] else None
        return len(v["bytes"])
    sizes = [size(v) for v in before["image"].to_pylist()]
    assert [s for i, s in enumerate(after["size"].to_pylist()) if i not in failed] == [sizes[i] for i in kept], (output, after["size"])
    assert [i for i, e in enumerate(after["_error"].to_pylist()) if e is not None] == list(failed), output
    assert [after["image"][i].as_py() for i in failed] == [None] * len(failed), output
    if output.endswith(".parquet"): # statistics do not exclude what is there
        file = parquet.ParquetFile(output)
        for g in range(file.metadata.num_row_groups):
            image = file.read_row_group(g)["image"].to_pylist()
            for c in (1, 2):
                column = file.metadata.row_group(g).column(c)
                assert column.path_in_schema in ("image.bytes", "image.path"), column
                present = [v[column.path_in_schema[6:]] for v in image if v is not None and v[column.path_in_schema[6:]] is not None]
                s = column.statistics
                assert s.null_count == len(image) - len(present), (output, s)
                if s.has_min_max:
                    assert (s.min, s.max) == (min(present), max(present)), (output, s)

before, turned, plain = read("in.parquet"), read("turned.parquet"), read("plain.parquet")
for name in ("in-parquet.parquet", "in-parquet.arrow", "in-arrow.parquet", "in-arrow.arrow", "killed.parquet", "killed.arrow", "merged.parquet", "retried.parquet", "retried.arrow"):
    same(name, before)
for name in ("failed.parquet", "failed.arrow"):
    same(name, before, [14])
same("turned.parquet.parquet", turned)
same("turned.arrow.arrow", turned)
same("both.parquet", pa.concat_tables([before, turned.cast(before.schema)]))
same("again.parquet", before)
same("piped.parquet", before)

described(parquet.read_table("mixed.parquet"))
described(parquet.read_table("chosen.parquet"), "image")
described(parquet.read_table("bytes.parquet"))
described(parquet.read_table("replaced.parquet"), "last")
mixed = parquet.read_table("mixed.parquet")["image"]
assert mixed.type == before["image"].type
assert mixed.to_pylist() == [None if v is None else {"bytes": v, "path": None} for v in plain["image"].to_pylist()] + before["image"].to_pylist()
chosen = parquet.read_table("chosen.parquet")
assert chosen.column_names == ["image", "id", "_error"] and chosen["image"].equals(before["image"]), chosen.schema
assert parquet.read_table("bytes.parquet")["image"].equals(plain["image"])
assert parquet.read_table("kept.parquet").column_names == ["id", "size", "_error"]
assert parquet.read_table("keptimage.parquet")["image"].equals(before["image"])
replaced = parquet.read_table("replaced.parquet")["image"]
assert replaced.type == pa.binary() and replaced.to_pylist() == [b"new"] * 60, replaced
shaped = pyarrow.feather.read_table("shaped.arrow")["image"]
assert shaped.type == before["image"].type and shaped.to_pylist() == [{"bytes": b"new", "path": None}] * 60, shaped
`

// TestBytesAndPath: a struct of bytes and path passes through Parquet and Arrow outputs unchanged, for pyarrow, also
// after a kill and a retry, and in shards.
func TestBytesAndPath(t *testing.T) {
	t.Parallel()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if prepared, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		python = cmp.Or(python, prepared)
	}
	if exec.Command(python, "-c", "import pyarrow").Run() != nil {
		t.Skip("SKIPPED: pyarrow is not installed (GPURUN_TEST_PYTHON names the interpreter): structs of bytes and path are not tested")
	}
	d := newSharedFolder(t, 1)
	for name, text := range map[string]string{"make.py": makePictures, "size.py": measurePictures, "replace.py": replacePictures, "check.py": checkPictures} {
		if err := os.WriteFile(d.join(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	script := func(name string) {
		t.Helper()
		cmd := exec.Command(python, name)
		cmd.Dir = d.path
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	gpurun := func(exit int, env []string, args ...string) {
		t.Helper()
		args = append(args, "--fetch-root", ".")
		if args[0] == "run" {
			args = append(args, "--python", python)
		}
		cmd, stderr := d.command(append(env, "PYTHONDONTWRITEBYTECODE=1"), args...)
		if slices.Contains(args, "-") {
			stdin, err := os.Open(d.join("in.arrow"))
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			cmd.Stdin = stdin
		}
		start(t, cmd)
		ends(t, cmd, stderr, exit)
		if text := stderr.String(); strings.Contains(text, "becomes") || strings.Contains(text, "disagree") {
			t.Errorf("%s: %s", args, text)
		}
	}
	script("make.py")
	for _, input := range []string{"parquet", "arrow"} {
		for _, output := range []string{"parquet", "arrow"} {
			gpurun(0, nil, "run", "-k", "size.py", "in."+input, "-o", "in-"+input+"."+output)
		}
		gpurun(0, nil, "run", "-k", "size.py", "turned."+input, "-o", "turned."+input+"."+input)
		gpurun(-1, []string{crash.Variable + "=appended:3"}, "run", "-k", "size.py", "in."+input, "-o", "killed."+input, "--chunk-records", "6")
		gpurun(0, nil, "run", "-k", "size.py", "in."+input, "-o", "killed."+input)
		gpurun(3, []string{"FAIL=1"}, "run", "-k", "size.py", "in."+input, "-o", "retried."+input)
		if err := os.Link(d.join("retried."+input), d.join("failed."+input)); err != nil { // a retry writes another file
			t.Fatal(err)
		}
		gpurun(0, nil, "retry", "retried."+input)
	}
	gpurun(0, nil, "run", "-k", "size.py", "-", "-o", "piped.parquet")
	for _, shard := range []string{"0/2", "1/2"} {
		gpurun(0, nil, "run", "-k", "size.py", "in.parquet", "-o", "merged.parquet", "--shard", shard, "--merge")
	}
	gpurun(0, nil, "run", "-k", "size.py", "in.parquet", "turned.parquet", "-o", "both.parquet")
	gpurun(0, nil, "run", "-k", "size.py", "in-parquet.parquet", "-o", "again.parquet", "--columns", "id,image,last,size")
	gpurun(0, nil, "run", "-k", "echo", "plain.parquet", "in.arrow", "-o", "mixed.parquet")
	gpurun(0, nil, "run", "-k", "echo", "in.parquet", "-o", "chosen.parquet", "--columns", "image,id")
	gpurun(0, nil, "run", "-k", "echo", "in.parquet", "-o", "bytes.parquet", "--columns", "id,image:bytes")
	gpurun(0, nil, "run", "-k", "size.py", "in.parquet", "-o", "kept.parquet", "--keep", "id")
	gpurun(0, nil, "run", "-k", "size.py", "in.parquet", "-o", "keptimage.parquet", "--keep", "image")
	gpurun(0, nil, "run", "-k", "replace.py", "in.parquet", "-o", "replaced.parquet")
	gpurun(0, nil, "run", "-k", "replace.py", "in.parquet", "-o", "shaped.arrow", "--columns", "id,image:struct(bytes,path)")
	script("check.py")
}
