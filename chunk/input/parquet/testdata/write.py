"""Writes the files of this folder, and next to each the JSON lines that it must become.

    python3 write.py [FOLDER]

Needs pyarrow, pandas and duckdb. The expected lines are made here from what pyarrow reads,
independently of gpurun. Numbers are compared by value, everything else by its text.
"""

import base64
import datetime
import decimal
import json
import math
import os
import sys
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def clock(value, unit):
    """A time of day, or the time in a timestamp: its fraction only if there is one."""
    per_second = 10 ** UNIT_DIGITS[unit]
    seconds, rest = divmod(value, per_second)
    text = "%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    return text + (".%0*d" % (UNIT_DIGITS[unit], rest) if rest else "")


def day(days):
    return str(np.datetime64(int(days), "D"))


def convert(s):
    """Returns the JSON text of a pyarrow scalar."""
    t = s.type
    if not s.is_valid:
        return "null"
    if pa.types.is_struct(t):
        return "{" + ",".join(json.dumps(f.name) + ":" + convert(s[f.name]) for f in t) + "}"
    if pa.types.is_map(t):
        pairs = []
        for pair in s.values:
            key = convert(pair["key"])
            pairs.append((key if key.startswith('"') else json.dumps(key)) + ":" + convert(pair["value"]))
        return "{" + ",".join(pairs) + "}"
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return "[" + ",".join(convert(e) for e in s.values) + "]"
    if pa.types.is_dictionary(t):
        return convert(s.value)
    if pa.types.is_timestamp(t):
        days, rest = divmod(s.value, 86400 * 10 ** UNIT_DIGITS[t.unit])
        return json.dumps(day(days) + "T" + clock(rest, t.unit) + ("Z" if t.tz else ""))
    if pa.types.is_date(t):
        return json.dumps(s.as_py().isoformat())
    if pa.types.is_time(t):
        return json.dumps(clock(s.value, t.unit))
    if pa.types.is_decimal(t):
        return format(s.as_py(), "f")
    if pa.types.is_float16(t) or pa.types.is_float32(t):
        value = s.as_py()
        return "null" if not math.isfinite(value) else repr(float(str(np.float32(value))))
    if pa.types.is_floating(t):
        value = s.as_py()
        return "null" if not math.isfinite(value) else repr(value)
    if pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t):
        return json.dumps(base64.b64encode(s.as_py()).decode())
    return json.dumps(s.as_py(), ensure_ascii=False)


def expect(path, table=None, special=None):
    """Writes what the file must become: the table, or what pyarrow reads from the file."""
    if table is None:
        table = pq.ParquetFile(path).read()
    with open(path.removesuffix(".parquet") + ".jsonl", "w", encoding="utf-8") as f:
        for row in range(table.num_rows):
            members = []
            for name in table.column_names:
                scalar = table.column(name)[row]
                text = special[name](scalar) if special and name in special else convert(scalar)
                members.append(json.dumps(name, ensure_ascii=False) + ":" + text)
            f.write("{" + ",".join(members) + "}\n")


def scalars():
    when = [0, 1, -1, 1767323045123456, None]
    return pa.table({
        "bool": pa.array([True, False, None, True, False]),
        "int8": pa.array([0, 1, -128, 127, None], pa.int8()),
        "int16": pa.array([0, 1, -32768, 32767, None], pa.int16()),
        "int32": pa.array([0, 1, -2**31, 2**31 - 1, None], pa.int32()),
        "int64": pa.array([0, 1, -2**63, 2**63 - 1, None], pa.int64()),
        "uint8": pa.array([0, 1, 2, 255, None], pa.uint8()),
        "uint16": pa.array([0, 1, 2, 65535, None], pa.uint16()),
        "uint32": pa.array([0, 1, 2, 2**32 - 1, None], pa.uint32()),
        "uint64": pa.array([0, 1, 2, 2**64 - 1, None], pa.uint64()),
        "float16": pa.array(np.array([0.1, -2, 6.1e-5, 6e-8, np.nan], np.float16)),
        "float32": pa.array([0.1, -1e-7, math.nan, math.inf, None], pa.float32()),
        "float64": pa.array([0.1, 1e300, math.nan, -math.inf, None], pa.float64()),
        "string": pa.array(["", "a", "é\n\"\\\u2028", "日本", None]),
        "large_string": pa.array(["", "a", "b", "c", None], pa.large_string()),
        "binary": pa.array([b"", b"\x00\xff", b"abc", b"a", None]),
        "fixed": pa.array([b"abc", b"\x00\x01\x02", None, b"xyz", b"123"], pa.binary(3)),
        "decimal": pa.array([decimal.Decimal(x) if x else None for x in ("0.00", "-0.05", "123.45", "-99999.99", None)], pa.decimal128(7, 2)),
        "decimal_wide": pa.array([decimal.Decimal(x) if x else None for x in ("0", "-1", "12345678901234567890123456789012345678", "-9", None)], pa.decimal128(38, 0)),
        "date": pa.array([datetime.date(1970, 1, 1), datetime.date(2026, 1, 2), datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
        "time_ms": pa.array([0, 1, 86399999, 3600000, None], pa.time32("ms")),
        "time_us": pa.array([0, 1, 86399999999, 3600000000, None], pa.time64("us")),
        "time_ns": pa.array([0, 1, 86399999999999, 3600000000000, None], pa.time64("ns")),
        "ts_ms": pa.array([0, 1, -1, 1767323045123, None], pa.timestamp("ms")),
        "ts_us": pa.array(when, pa.timestamp("us")),
        "ts_ns": pa.array([0, 1, -1, 1767323045123456789, None], pa.timestamp("ns")),
        "ts_utc": pa.array(when, pa.timestamp("us", tz="UTC")),
        "ts_zone": pa.array(when, pa.timestamp("us", tz="Europe/Berlin")),
        "null": pa.nulls(5),
        "dictionary": pa.array(["x", "y", "x", None, "y"]).dictionary_encode(),
    })


def nested():
    rows = [
        {"ints": [1, 2, 3], "lists": [["a"], [], ["b", None]], "struct": {"a": 1, "b": {"c": "x"}},
         "structs": [{"k": 1, "v": [1.5]}, {"k": 2, "v": []}], "map": [("x", 1), ("y", None)], "intmap": [(1, "a")]},
        {"ints": [], "lists": [], "struct": {"a": None, "b": None}, "structs": [], "map": [], "intmap": []},
        {"ints": None, "lists": None, "struct": None, "structs": None, "map": None, "intmap": None},
        {"ints": [None], "lists": [None, [None]], "struct": {"a": 2, "b": {"c": None}},
         "structs": [None, {"k": None, "v": None}], "map": [("", 7)], "intmap": [(-1, None), (5, "b")]},
        {"ints": list(range(50)), "lists": [["z"] * 3] * 4, "struct": {"a": 3, "b": {"c": "y"}},
         "structs": [{"k": i, "v": [float(i)] * i} for i in range(4)], "map": [("é\"", 1)], "intmap": [(0, "")]},
    ]
    schema = pa.schema([
        ("ints", pa.list_(pa.int32())),
        ("lists", pa.list_(pa.list_(pa.string()))),
        ("struct", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        ("structs", pa.list_(pa.struct([("k", pa.int32()), ("v", pa.list_(pa.float64()))]))),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("intmap", pa.map_(pa.int32(), pa.string())),
    ])
    return pa.Table.from_pylist(rows, schema=schema)


def records(n, width=4):
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((n, width)).astype(np.float32)
    return pa.table({
        "id": pa.array(range(n), pa.int64()),
        "text": pa.array(["text %d %s" % (i, "x" * (i % 37)) for i in range(n)]),
        "label": pa.array(["label-%d" % (i % 5) if i % 7 else None for i in range(n)]),
        "vector": pa.array(list(vectors), pa.list_(pa.float32())),
        "tags": pa.array([["t%d" % (k % 3) for k in range(i % 4)] for i in range(n)], pa.list_(pa.string())),
    })


def write_pyarrow(folder):
    def write(name, table, expected=None, special=None, **options):
        path = os.path.join(folder, name + ".parquet")
        pq.write_table(table, path, **options)
        expect(path, expected, special)

    write("scalars", scalars())
    write("nested", nested())
    write("nested-v2", nested(), data_page_version="2.0", compression="zstd", use_dictionary=False)
    write("groups", records(100), row_group_size=7)
    write("pages", records(400), data_page_size=256, data_page_version="2.0", compression="zstd", write_page_checksum=True)
    write("plain", records(50), use_dictionary=False, compression="none")
    write("gzip", records(50), compression="gzip", write_page_index=True)
    write("brotli", records(50), compression="brotli", store_decimal_as_integer=True)
    # A dictionary without values takes no bytes, which brotli compresses to one.
    write("nulls", pa.table({"id": [0, 1], "none": pa.array([None, None], pa.string()), "number": pa.array([None, None], pa.int64()),
                             "lists": pa.array([None, []], pa.list_(pa.string()))}), compression="brotli")
    write("old", records(50), version="1.0", use_compliant_nested_type=False)
    write("encodings", records(80), use_dictionary=False, column_encoding={
        "id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "label": "DELTA_LENGTH_BYTE_ARRAY",
        "vector.list.element": "BYTE_STREAM_SPLIT", "tags.list.element": "DELTA_BYTE_ARRAY"})
    # INT96 has no zone, and nanoseconds.
    table = pa.table({"when": pa.array([0, 1, -1, 1767323045123456789, None], pa.timestamp("ns"))})
    write("int96", table, table, use_deprecated_int96_timestamps=True)
    write("empty", records(0))
    write("big-values", pa.table({"text": pa.array(["a" * 30_000, "", "b" * 7_000, None])}), compression="zstd")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.float32()), 3)
    write("fixed-lists", pa.table({"vector": vectors}))
    write("lz4", records(50), compression="lz4")
    bad = pa.array([b"fine", b"caf\xe9", b"fine"], pa.binary()).view(pa.string())  # not UTF-8
    pq.write_table(pa.table({"text": bad, "id": [1, 2, 3]}), os.path.join(folder, "bad-text.parquet"), write_statistics=False)
    documents = ['{"a": [1, 2]}', "[]", None, "7", '"x"']
    write("json", pa.table({"doc": pa.array(documents, pa.json_())}), pa.table({"doc": documents}),
          {"doc": lambda s: s.as_py() or "null"})
    ids = [uuid.UUID(int=i * 0x123456789ABCDEF0123456789ABCDEF) for i in range(3)]
    write("uuid", pa.table({"id": pa.array([i.bytes for i in ids], pa.uuid())}), pa.table({"id": [str(i) for i in ids]}))


def write_pandas(folder):
    import pandas as pd

    frame = pd.DataFrame({
        "id": range(20), "text": ["row %d" % i for i in range(20)], "score": np.linspace(0, 1, 20),
        "when": pd.date_range("2026-01-01", periods=20, freq="h", tz="UTC"),
        "kind": pd.Categorical(["a", "b"] * 10), "maybe": pd.array([1, None] * 10, dtype="Int64"),
    }, index=pd.Index(["r%d" % i for i in range(20)], name="row"))
    path = os.path.join(folder, "pandas.parquet")
    frame.to_parquet(path)
    expect(path)


def write_duckdb(folder):
    import duckdb

    path = os.path.join(folder, "duckdb.parquet")
    duckdb.sql("""
        COPY (SELECT i AS id, 'text ' || i AS text, i / 7.0::DOUBLE AS score, (i * 1.25)::DECIMAL(9, 2) AS price,
                     DATE '2026-01-01' + i::INT AS day, TIMESTAMP '2026-01-01 10:00:00.5' + INTERVAL (i) HOUR AS at,
                     TIMESTAMPTZ '2026-01-01 10:00:00+00' AS utc, [i, i + 1] AS pair, {'a': i, 'b': [text]} AS obj,
                     MAP {'k' || i: i} AS map, CASE WHEN i %% 3 = 0 THEN NULL ELSE i::UTINYINT END AS small, i %% 2 = 0 AS even
              FROM (SELECT range AS i, 'x' AS text FROM range(30)))
        TO '%s' (FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION zstd)""" % path)
    expect(path)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    write_pyarrow(target)
    write_pandas(target)
    write_duckdb(target)
