"""Writes the files of this folder, and next to each the JSON lines that it must become.

    python3 write.py [FOLDER]

Needs pyarrow; pandas, polars and datasets write a file each if they are there. The expected lines are
made here from what pyarrow reads, independently of gpurun.
"""

import base64
import datetime
import decimal
import importlib.util
import json
import os
import sys
import uuid

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc

HERE = os.path.dirname(os.path.abspath(__file__))


def parquet_module():
    """The same values, and the same rules for their JSON, as for Parquet."""
    path = os.path.join(HERE, "..", "..", "parquet", "testdata", "write.py")
    spec = importlib.util.spec_from_file_location("write_parquet", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


parquet = parquet_module()
common = parquet.convert


def convert(s):
    t = s.type
    if not s.is_valid:
        return "null"
    if isinstance(t, pa.ExtensionType) or isinstance(t, pa.BaseExtensionType):
        if t.extension_name == "arrow.uuid":
            return json.dumps(str(uuid.UUID(bytes=s.value.as_py())))
        if t.extension_name == "arrow.json":
            return s.value.as_py()
        return convert(s.value)
    if pa.types.is_union(t) or pa.types.is_dictionary(t):
        return convert(s.value)
    if pa.types.is_run_end_encoded(t):
        return json.dumps(s.as_py())
    if pa.types.is_duration(t):
        return str(s.value)
    if pa.types.is_interval(t):
        months, days, nanos = s.as_py()
        return '{"months":%d,"days":%d,"nanoseconds":%d}' % (months, days, nanos)
    if t == pa.binary_view():
        return json.dumps(base64.b64encode(s.as_py()).decode())
    if pa.types.is_decimal(t) and t.scale < 0:
        return format(s.as_py(), "f")
    if pa.types.is_list_view(t) or pa.types.is_large_list_view(t):
        return "[" + ",".join(convert(e) for e in s.values) + "]"
    if pa.types.is_map(t) and pa.types.is_struct(t.key_type):
        return "[" + ",".join('{"key":%s,"value":%s}' % (convert(p["key"]), convert(p["value"])) for p in s.values) + "]"
    if pa.types.is_date64(t):
        return json.dumps(s.as_py().isoformat())
    return common(s)


parquet.convert = convert


def expect(path, table):
    """Writes what the file must become."""
    with open(path + ".jsonl", "w", encoding="utf-8") as f:
        columns = [(json.dumps(name, ensure_ascii=False), table.column(i)) for i, name in enumerate(table.column_names)]
        for row in range(table.num_rows):
            f.write("{" + ",".join(name + ":" + convert(column[row]) for name, column in columns) + "}\n")


def more():
    """Types that Parquet does not have."""
    ree = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 5], pa.int32()), pa.array(["a", None, "b"]))
    ree64 = pa.RunEndEncodedArray.from_arrays(pa.array([1, 5], pa.int64()), pa.array([1.5, 2.5]))
    sparse = pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1, 0], pa.int8()), [pa.array([1, 2, None, 4, 5]), pa.array(["a", "b", "c", None, "e"])])
    dense = pa.UnionArray.from_dense(pa.array([5, 7, 5, 7, 5], pa.int8()), pa.array([0, 0, 1, 1, 2], pa.int32()),
                                     [pa.array([1, 2, None]), pa.array(["a", None])], ["i", "t"], [5, 7])
    long = "a text that is longer than what fits into a view, %d"
    return pa.table({
        "ree": ree, "ree64": ree64, "sparse": sparse, "dense": dense,
        "time_s": pa.array([0, 1, 86399, 3600, None], pa.time32("s")),
        "ts_s": pa.array([0, 1, -1, 1767323045, None], pa.timestamp("s")),
        "ts_s_zone": pa.array([0, 1, -1, 1767323045, None], pa.timestamp("s", "America/New_York")),
        "date64": pa.array([datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(2026, 1, 2), None, datetime.date(1, 1, 1)], pa.date64()),
        "duration": pa.array([0, 1, -5, 10**12, None], pa.duration("us")),
        "interval": pa.array([(1, 2, 3), (-1, -2, -3), (0, 0, 10**15), None, (1, 0, 0)], pa.month_day_nano_interval()),
        "decimal32": pa.array([decimal.Decimal(x) if x else None for x in ("0.00", "-0.05", "12345.67", "-1.00", None)], pa.decimal32(7, 2)),
        "decimal64": pa.array([decimal.Decimal(x) if x else None for x in ("0.000", "-0.005", "123456789012345.678", "-1.000", None)], pa.decimal64(18, 3)),
        "decimal256": pa.array([decimal.Decimal(x) if x else None for x in ("0", "-1", "1" * 76, "-" + "9" * 76, None)], pa.decimal256(76, 0)),
        "decimal_negative": pa.array([decimal.Decimal(x) if x else None for x in ("0", "1200", "-100", "9999900", None)], pa.decimal128(5, -2)),
        "large_binary": pa.array([b"", b"\xff", b"abc", None, b"x" * 30], pa.large_binary()),
        "string_view": pa.array(["", "short", long % 1, None, "twelve bytes"], pa.string_view()),
        "binary_view": pa.array([b"", b"short", b"\xff" * 40, None, b"x" * 13], pa.binary_view()),
        "list_view": pa.array([[1, 2], [], None, [None], [5]], pa.list_view(pa.int32())),
        "large_list": pa.array([["a"], [], None, [None], ["b", "c"]], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1.5, 2.5], [3.5, None], None, [0, 0], [1, 1]], pa.list_(pa.float32(), 2)),
        "struct_map": pa.array([[({"a": 1}, "x")], [], None, [({"a": None}, None)], [({"a": 2}, "y")]], pa.map_(pa.struct([("a", pa.int8())]), pa.string())),
        "dictionary_int": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0], pa.uint8()), pa.array([10, None, 30])),
        "dictionary_list": pa.array([["x", "y"], ["x"], None, [], ["z", None]], pa.list_(pa.dictionary(pa.int16(), pa.string()))),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=i).bytes if i else None for i in range(5)], pa.binary(16))),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', "null", "[1,2]", None, '"x"'])),
    })


def batches():
    """Many small batches, whose dictionaries grow and change."""
    word = lambda i: f"word {i}"
    parts = []
    for b in range(12):
        words = [word(i) for i in range(3 + b)]
        parts.append(pa.record_batch({
            "id": pa.array(range(b * 7, b * 7 + 7)), "word": pa.DictionaryArray.from_arrays(pa.array([i % len(words) for i in range(7)], pa.int32()), pa.array(words)),
            "text": pa.array([None if i == 3 else f"text {b} {i} é" for i in range(7)])}))
    return pa.Table.from_batches(parts)


def write(path, table, stream=False, **options):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    expect(path, table)


def main(folder):
    at = lambda name: os.path.join(folder, name)
    scalars, nested = parquet.scalars(), parquet.nested()
    write(at("scalars.arrow"), scalars)
    write(at("scalars-zstd.arrows"), scalars, stream=True, compression="zstd")
    write(at("nested.arrow"), nested)
    write(at("nested-lz4.arrows"), nested, stream=True, compression="lz4")
    write(at("more.arrow"), more())
    write(at("more-lz4.arrow"), more(), compression="lz4")
    write(at("more.arrows"), more(), stream=True)
    write(at("old.arrow"), nested, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    write(at("old.arrows"), scalars, stream=True, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    write(at("batches.arrows"), batches(), stream=True)
    write(at("deltas.arrows"), batches(), stream=True, emit_dictionary_deltas=True)
    write(at("deltas.arrow"), batches(), emit_dictionary_deltas=True)
    write(at("empty.arrow"), scalars.slice(0, 0))
    long = pa.table({"text": ["the same words again and again, %d" % (i % 7) for i in range(2200)], "n": [i // 500 for i in range(2200)]})
    write(at("long-lz4.arrow"), long, compression="lz4")
    write(at("sliced.arrows"), nested.slice(1, 3), stream=True)
    feather = at("feather-zstd.feather")
    pyarrow.feather.write_feather(long.slice(0, 50), feather, compression="zstd")
    expect(feather, long.slice(0, 50))
    bad = pa.table({"text": pa.Array.from_buffers(pa.string(), 3, pa.array([b"fine", b"caf\xe9", b"fine"]).buffers()), "id": [1, 2, 3]})
    with pa.ipc.new_file(at("bad-text.arrow"), bad.schema) as writer:
        writer.write_table(bad)
    others(at, nested)


def others(at, nested):
    """Files of other writers, if they are installed."""
    rows = {"id": [1, 2, 3], "text": ["a", None, "a longer text than twelve bytes"], "x": [0.5, None, 1.5]}
    try:
        import pandas
        pandas.DataFrame(rows).to_feather(at("pandas.feather"))
        expect(at("pandas.feather"), pyarrow.feather.read_table(at("pandas.feather")))
    except ImportError:
        pass
    try:
        import polars
        polars.DataFrame(rows).with_columns(c=polars.Series(["x", "y", "x"], dtype=polars.Categorical)).write_ipc(at("polars.arrow"), compression="zstd")
        expect(at("polars.arrow"), pa.ipc.open_file(at("polars.arrow")).read_all())
    except ImportError:
        pass
    try:
        import datasets
        datasets.disable_progress_bars()
        ds = datasets.Dataset.from_dict({"id": list(range(1100)), "text": [f"text {i}" for i in range(1100)]})
        ds.save_to_disk(at("saved"))
        os.replace(os.path.join(at("saved"), "data-00000-of-00001.arrow"), at("datasets.arrow"))
        expect(at("datasets.arrow"), pa.ipc.open_stream(at("datasets.arrow")).read_all())
        for name in os.listdir(at("saved")):
            os.remove(os.path.join(at("saved"), name))
        os.rmdir(at("saved"))
    except ImportError:
        pass


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else HERE)
