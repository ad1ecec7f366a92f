"""Reads FILE.parquet with pyarrow, DuckDB, pandas and polars, and compares it with FILE.jsonl.

In the lines, the values of typed columns are numbers or lists; "NaN" and "Infinity" are
written as in Python. The first line of FILE.schema.json names the columns of type json.
"""

import base64
import json
import math
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def same(a, b):
    if isinstance(a, np.ndarray):
        a = list(a)
    if isinstance(b, float) and math.isnan(b):
        return isinstance(a, (float, np.floating)) and math.isnan(a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, list) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def check(reader, rows, expected):
    if len(rows) != len(expected):
        sys.exit(f"{reader}: {len(rows)} rows, want {len(expected)}")
    for i, (row, want) in enumerate(zip(rows, expected)):
        for name, value in want.items():
            if not same(row[name], value):
                sys.exit(f"{reader}: row {i}, column {name}: {row[name]!r}, want {value!r}")


base = sys.argv[1].removesuffix(".parquet")
columns = json.load(open(base + ".schema.json"))
expected = []
for line in open(base + ".jsonl", encoding="utf-8"):
    row = json.loads(line)
    for c in columns:
        value = row.get(c["name"])
        if c["type"].startswith("float32") and value is not None:
            value = np.asarray(value, np.float32).tolist()
        if c["type"].startswith("struct") and value is not None:
            value["bytes"] = None if value["bytes"] is None else base64.b64decode(value["bytes"])
        row[c["name"]] = value
    expected.append(row)

parquet = pq.ParquetFile(sys.argv[1], page_checksum_verification=True)
table = parquet.read()
check("pyarrow", table.to_pylist(), expected)
types = {"bool": pa.bool_(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(), "bytes": pa.binary(), "struct(path,bytes)": pa.struct([("path", pa.string()), ("bytes", pa.binary())])}
for c in columns:
    if c["type"] == "json":
        continue
    want = types[c["type"].replace("[]", "")]
    sizes = c.get("dimensions") or ([c["width"]] if c.get("width") else [-1] * c["type"].count("[]"))
    full = table.column(c["name"]).null_count == 0  # then vectors have a fixed size
    for size in reversed(sizes):
        want = pa.list_(pa.field("element", want, nullable=False), size if full else -1)
    got = table.schema.field(c["name"]).type
    if got != want:
        sys.exit(f"pyarrow: column {c['name']} has type {got}, want {want}")

result = duckdb.sql(f"FROM read_parquet('{sys.argv[1]}')")
names = result.columns
check("duckdb", [dict(zip(names, row)) for row in result.fetchall()], expected)

frame = pd.read_parquet(sys.argv[1], dtype_backend="pyarrow")
if list(frame.columns) != [c["name"] for c in columns] + ["_error"] or len(frame) != len(expected):
    sys.exit(f"pandas: {frame.columns}")

frame = pl.read_parquet(sys.argv[1])
check("polars", frame.to_dicts(), expected)

# The statistics hold for every row group.
for g in range(parquet.metadata.num_row_groups):
    group = parquet.read_row_group(g)
    for i in range(parquet.metadata.num_columns):
        chunk = parquet.metadata.row_group(g).column(i)
        statistics = chunk.statistics
        if chunk.compression != "ZSTD" or "PLAIN_DICTIONARY" in chunk.encodings or statistics is None or not chunk.has_offset_index:
            sys.exit(f"column {chunk.path_in_schema}: {chunk}")
        name, *inside = chunk.path_in_schema.split(".")
        column = group.column(name)
        if name == "file":
            column = pc.struct_field(column, inside[0])
        if statistics.null_count != column.null_count:
            sys.exit(f"column {chunk.path_in_schema}: {statistics.null_count} nulls, want {column.null_count}")
        if statistics.has_min_max:
            values = [v for v in column.to_pylist() if v is not None]
            if not chunk.has_column_index:
                sys.exit(f"column {chunk.path_in_schema} has no index of bounds")
            if min(values) != statistics.min or max(values) != statistics.max:
                sys.exit(f"column {chunk.path_in_schema}: {statistics.min} to {statistics.max}")
