"""gpurun.run and gpurun.start."""

import datetime
import decimal
import importlib
import io
import json
import os
import sys
import tempfile
import unittest
import uuid
from unittest import mock

import gpurun
from gpurun import _progress

RECORDS = [{"id": i, "text": "x" * i} for i in range(100)]
CPU = {"gpus": "cpu:1"}


def tables():
    """The same records in each kind of table whose package is installed."""
    columns = {"text": ["ab", "c"], "x": [1.5, None]}
    for package, make in [("pandas", lambda p: p.DataFrame(columns)), ("polars", lambda p: p.DataFrame(columns)), ("pyarrow", lambda p: p.table(columns))]:
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        yield make(module)


class Jobs(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.kernel = self.write("kernel.py", "def process(batch): return {'n': [len(t) for t in batch['text']]}")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_records(self):
        result = gpurun.run(self.kernel, iter(RECORDS), batch_size=7, **CPU)
        self.assertEqual([record["n"] for record in result.records()], list(range(100)))
        self.assertEqual((result.succeeded, result.failed, result.exit_code), (100, 0, 0))
        self.assertIn("100 succeeded", repr(result))

    def test_files(self):
        path, out = self.write("in.jsonl", "".join(json.dumps(record) + "\n" for record in RECORDS)), os.path.join(self.folder, "out.jsonl")
        result = gpurun.run([self.kernel, "echo"], path, out, **CPU)
        self.assertEqual(result.output, out)
        with open(out) as file:
            self.assertEqual(len(file.readlines()), 100)
        parts = gpurun.run(self.kernel, path, os.path.join(self.folder, "parts", ""), **CPU)
        self.assertEqual(list(parts.records()), [dict(record, n=i) for i, record in enumerate(RECORDS)])
        several = gpurun.run(self.kernel, [path, self.write("more.jsonl", '{"text":"more"}\n')], **CPU)
        self.assertEqual([record["n"] for record in several.records()], [*range(100), 4])
        with self.assertRaises(gpurun.UsageError):  # it exists and belongs to no job with these settings
            gpurun.run("echo", path, path, **CPU)

    def test_tables(self):
        for table in tables():
            result = gpurun.run(self.kernel, table, **CPU)
            self.assertEqual(list(result.records()), [{"text": "ab", "x": 1.5, "n": 2}, {"text": "c", "x": None, "n": 1}])

    def test_lines(self):
        result = gpurun.run(self.kernel, ['{"text":"ab"}', '{"text":"c"}'], **CPU)
        self.assertEqual([record["n"] for record in result.records()], [2, 1])

    def test_values(self):
        record = {"text": "a", "d": decimal.Decimal("1.50"), "b": b"\x00\xff", "u": uuid.UUID(int=1), "f": float("nan"), "t": datetime.date(2026, 1, 31)}
        result = gpurun.run(self.kernel, [record], **CPU)
        self.assertEqual(list(result.records()), [{"text": "a", "d": "1.50", "b": "AP8=", "u": "00000000-0000-0000-0000-000000000001",
                                                   "f": None, "t": "2026-01-31", "n": 1}])
        with self.assertRaisesRegex(TypeError, "record 2, member 'tags': .*set is not a JSON value: return a sorted list"):
            gpurun.run(self.kernel, [RECORDS[0], {"text": "a", "tags": {1}}], **CPU)

    def test_outputs(self):
        result = gpurun.run(self.kernel, RECORDS, os.path.join(self.folder, "out.jsonl.gz"), **CPU)
        self.assertEqual(len(list(result.records())), 100)
        result = gpurun.run(self.kernel, RECORDS, os.path.join(self.folder, "out.parquet"), **CPU)
        try:
            import pyarrow
        except ImportError:
            with self.assertRaisesRegex(ImportError, "needs the package pyarrow"):
                list(result.records())
            return
        self.assertEqual(list(result)[7], {"id": 7, "text": "xxxxxxx", "n": 7})
        self.assertEqual(result.to_arrow().column("n").to_pylist(), list(range(100)))

    def test_lines_as_table(self):
        """JSON lines as a table have the types and values of the records."""
        kernel = self.write("mixed.py", """
def process(batch):
    return [{"i": n, "f": n / 2 if n else 1, "big": 10 ** 17 + n, "date": "2024-01-0%d" % (n + 1), "tags": ["a"] * n, "ok": None if n == 1 else n == 0, **({"late": n} if n > 1 else {}),
             **({"_error": "no"} if n == 2 else {})} for n in batch["n"]]
""")
        try:
            import pandas, pyarrow
        except ImportError:
            self.skipTest("SKIPPED: no pandas, or no pyarrow")
        same = lambda frame: frame.astype(object).where(frame.notna(), None).to_dict("records")
        for name in "out.jsonl", "out.jsonl.gz":
            result = gpurun.run(kernel, [{"n": n} for n in range(4)], os.path.join(self.folder, name), allow_failed=True, **CPU)
            records = list(result)
            frame, names = result.to_pandas(), {name for record in records for name in record}
            self.assertEqual(same(frame), same(pandas.DataFrame(records)[list(frame)]))
            self.assertEqual((set(frame), str(frame.dtypes["i"]), str(frame.dtypes["f"])), (names, str(pandas.DataFrame(records).dtypes["i"]), "float64"))
            self.assertEqual(set(result.to_arrow().column_names), names)
            self.assertEqual(result.to_arrow().select(["i", "date"]).to_pylist(), [{"i": record.get("i"), "date": record.get("date")} for record in records])
        for value in ['{"a":1}', '[[1]]', '123456789012345678901234567890', '"text"']:  # what pyarrow reads in another way, or not at all
            given = ['{"x":%s}' % value, '{"x":{"b":2}}']
            result = gpurun.run("echo", given, os.path.join(self.folder, "x.jsonl"), force=True, **CPU)
            self.assertEqual(result.to_pandas()["x"].tolist(), [json.loads(value), {"b": 2}])

    def test_functions(self):
        def shout(batch):
            return {}
        with self.assertRaisesRegex(TypeError, r'save shout in a file and pass "FILE.py:shout"'):
            gpurun.run(shout, RECORDS)
        with self.assertRaisesRegex(TypeError, r'save it in a file and pass "FILE.py:NAME"'):
            gpurun.run(lambda batch: {}, RECORDS)

    def test_cause(self):
        with self.assertRaisesRegex(gpurun.RecordsFailed, '1 of 2 records failed, mostly with: the record has no member "text"'):
            gpurun.run(self.kernel, [{"text": "a"}, {}], **CPU)

    def test_events(self):
        names = []
        with gpurun.start(self.kernel, RECORDS, **CPU) as job:
            names = [event["event"] for event in job]
            self.assertEqual(job.wait().succeeded, 100)
        self.assertEqual((names[0], names[-1]), ("planned", "finished"))

    def test_errors(self):
        for kernel, records, error, code in [
            ("nosuch.py", RECORDS, gpurun.KernelError, 5),
            (self.write("bad.py", "def process(batch): 1 / 0"), RECORDS, gpurun.KernelError, 5),
            (self.write("some.py", "def process(batch): return [None if r['id'] else ValueError('no') for r in batch]"), RECORDS, gpurun.RecordsFailed, 3),
            ("echo", os.path.join(self.folder, "missing.jsonl"), gpurun.UsageError, 2),
        ]:
            with self.subTest(kernel), self.assertRaises(error) as caught:
                gpurun.run(kernel, records, **CPU)
            self.assertEqual(caught.exception.exit_code, code)
            self.assertTrue(str(caught.exception))
        with self.assertRaisesRegex(gpurun.UsageError, "^there is no option no_such_flag=; gpurun run --help"):
            gpurun.run("echo", RECORDS, no_such_flag=1, **CPU)
        with self.assertRaisesRegex(gpurun.UsageError, "no option batchsize=; did you mean batch_size=[?];"):
            gpurun.run("echo", RECORDS, batchsize=1, **CPU)

    def test_failing_input(self):
        def records():
            yield RECORDS[0]
            raise LookupError("no more")

        with self.assertRaisesRegex(LookupError, "no more"):
            gpurun.run("echo", records(), **CPU)

    def test_leaving_stops(self):
        endless = ({"id": i} for i in iter(int, 1))
        with gpurun.start("echo", endless, **CPU) as job:
            next(job)
        self.assertIsNotNone(job._process.returncode)

    def test_config(self):
        kernel = self.write("config.py", "def setup(ctx):\n  global x\n  x = ctx.config['x']\ndef process(batch): return {'x': [x] * len(batch)}")
        self.assertEqual(next(gpurun.run(kernel, [{}], config={"x": [1, "ä"]}, **CPU).records()), {"x": [1, "ä"]})

    def test_interpreter(self):
        kernel = self.write("which.py", "import sys\ndef process(batch): return {'x': [sys.executable] * len(batch)}")
        self.assertEqual(next(gpurun.run(kernel, [{}], **CPU).records())["x"], sys.executable)


class Progress(unittest.TestCase):

    EVENTS = [{"event": "planned"}, {"event": "progress", "job": {"records": 25, "failed": 1}, "total": 100},
              {"event": "finished", "report": {"in": 100, "pending": 0, "failed": 1}}]

    def test_terminal(self):
        out = io.StringIO()
        with mock.patch.object(sys, "stderr", out):
            bar = _progress.progress_of(True)
            for event in self.EVENTS:
                bar.update(event)
            bar.close()
        self.assertIn("25/100", out.getvalue())
        self.assertIn("[" + "=" * _progress.WIDTH + "] 100/100", out.getvalue())
        self.assertIn("1 failed", out.getvalue())

    def test_notebook(self):
        bar = _progress.NotebookProgress()
        bar.show = lambda: None
        for event in [{"event": "worker_phase", "device": "GPU 0", "slot": 0, "phase": "done"}, *self.EVENTS[:2]]:
            bar.update(event)
        self.assertIn("<progress value=0.250", bar._repr_html_())
        self.assertIn("0  computing", bar._repr_html_())
        self.assertIn("25%", repr(bar))
        bar.update(self.EVENTS[2])
        self.assertIn("0  done", bar._repr_html_())

    def test_failed(self):
        """The bars of a job that failed do not say that it still computes."""
        bar = _progress.NotebookProgress()
        shown = []
        bar.show = lambda: shown.append(bar._repr_html_())
        bar.update({"event": "error", "message": "no input"})
        self.assertEqual(shown, [])
        bar.update({"event": "worker_phase", "device": "GPU 0", "slot": 0, "phase": "warmup"})
        bar.update({"event": "error", "message": "the kernel fails on everything"})
        self.assertIn("0  stopped", shown[-1])
        self.assertNotIn("batch", shown[-1])

    def test_nothing(self):
        self.assertIs(type(_progress.progress_of(False)), _progress.Quiet)
        with mock.patch.object(sys, "stderr", io.StringIO()):
            self.assertIs(type(_progress.progress_of(None)), _progress.Progress)


if __name__ == "__main__":
    unittest.main()
