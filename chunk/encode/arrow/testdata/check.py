"""Checks a file that gpurun has written: check.py FILE ROWS LINE. The first row has the values of the line."""

import json
import sys

import pyarrow as pa
import pyarrow.ipc

path, rows, line = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])

before = pa.total_allocated_bytes()
with pa.memory_map(path) as file:
    reader = pa.ipc.open_file(file)
    table = reader.read_all()
    table.validate(full=True)
    assert pa.total_allocated_bytes() == before, "the file is copied, not mapped"
    for batch in range(reader.num_record_batches):
        for column in reader.get_batch(batch).columns:
            for buffer in column.buffers():
                assert buffer is None or buffer.address % 8 == 0, "a buffer is not aligned"
assert table.num_rows == rows, table.num_rows
types = {field.name: str(field.type) for field in table.schema}
assert types["vector"] == "fixed_size_list<element: float not null>[4]", types["vector"]
assert types["grid"].startswith("fixed_size_list<element: fixed_size_list<element: int64 not null>[3] not null>[2]"), types["grid"]
assert types["int8"] == "int8" and types["decimal(76,5)"] == "decimal256(76, 5)" and types["timestamptz(ns)"] == "timestamp[ns, tz=UTC]", types
if rows:
    first = table.slice(0, 1).select([name for name in types if "(ns)" not in name]).to_pylist()[0]  # Python has no nanoseconds
    assert first["vector"] == [0, 1, 2, 3] and first["grid"] == [[0, 1, 2], [3, 4, 5]] and first["flag"] is False, first
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string", "string[]", "int16[][]", "bool[]"):
        assert first[name] == line[name], (name, first[name], line[name])
    assert str(first["decimal(38,0)"]) == "-12345678901234567890123456789012345678", first
    assert str(first["decimal(7,2)"]) == "-12345.67" and [str(d) for d in first["decimal(5,1)[]"]] == ["1.5", "-2.0"], first
    assert first["struct(bytes,path)"] == {"bytes": b"\x00\xff", "path": "é.png"} and first["struct(path,bytes)"] == {"path": None, "bytes": b""}, first
    assert first["bytes"] == b"\x00\xff" and first["binary(3)"] == b"abc" and str(first["date"]) == "2026-01-31", first
    assert table.column("vector").null_count == len(range(1, rows, 3)), table.column("vector").null_count
    assert json.loads(table.column("_error")[2].as_py())["kind"] == "row"


def optional(name, check):
    try:
        module = __import__(name)
    except ImportError:
        return
    check(module)


def polars(pl):
    # polars has decimals of at most 38 digits
    frame = pl.read_ipc(path, columns=[c for c in types if "decimal256" not in types[c]])
    assert frame.height == rows
    assert rows == 0 or frame["vector"][0].to_list() == [0, 1, 2, 3]


def pandas(pd):
    # times of Python have no nanoseconds
    assert len(pd.read_feather(path, columns=[c for c in types if c != "time(ns)"])) == rows


def duckdb(db):
    mapped = table.select([c for c in types if "decimal256" not in types[c]])
    assert db.sql("select count(*) from mapped").fetchall() == [(rows,)]


optional("polars", polars)
optional("pandas", pandas)
optional("duckdb", duckdb)
