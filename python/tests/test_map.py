"""gpurun.map: functions that travel by value, and what makes one the same."""

import collections
import contextlib
import dataclasses
import enum
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import typing
import unittest

import gpurun

try:
    import cloudpickle
except ImportError:
    cloudpickle = None


def Function(*arguments, **named):
    from gpurun._function import Function  # workers import this file, too, and have no such module
    return Function(*arguments, **named)


RECORDS = [{"id": i, "text": "x" * i} for i in range(50)]
CPU = {"gpus": "cpu:1", "progress": False}
SCALE = 2
LOCK = threading.Lock()
later = LOCK  # load sets it in each worker


def scaled(text):
    return SCALE * len(text)


def load(ctx):
    global later
    later = ctx.device


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    factor: int = 3


class Pair(typing.NamedTuple):
    text: str
    n: int


class Meta(type):
    pass


class Model(metaclass=Meta):
    def __init__(self, ctx, size=1):
        self.device, self.size = ctx.device, size

    def setup(self, ctx):
        self.ready = 1

    def __call__(self, batch):
        return {"n": [self.size * scaled(text) + self.ready - 1 for text in batch["text"]], "device": [self.device] * len(batch)}


def twice(function):
    @functools.wraps(function)
    def inner(batch):
        return {name: [2 * one for one in column] for name, column in function(batch).items()}
    return inner


@twice
def decorated(batch):
    return {"n": [len(text) for text in batch["text"]]}


@gpurun.kernel(setup=load, batch_size=7)
def with_setup(batch):
    return {"device": [later] * len(batch["text"])}


async def concurrent(record):
    return {"n": len(record["text"])}


class Session(unittest.TestCase):
    """A temporary folder as the current one, and a cache of its own."""

    runner = {}  # what Python has compiled for gpurun, by name: the next cache begins with it

    def keep_runner(self, cache):
        for name in os.listdir(cache):
            if re.fullmatch(r"runner-[\w-]+", name):
                with open(os.path.join(cache, name), "rb") as file:
                    self.runner[name] = file.read()

    def setUp(self):
        from unittest import mock  # not above: workers import this file, too
        self.mock = mock
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        cache = os.path.join(self.folder, "cache", "gpurun")
        os.makedirs(cache)
        for name, data in self.runner.items():
            with open(os.open(os.path.join(cache, name), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(data)
        self.addCleanup(self.keep_runner, cache)
        environment = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": os.path.dirname(cache), "PYTHONDONTWRITEBYTECODE": "1"})
        environment.start()
        self.addCleanup(environment.stop)

    def script(self, name, text):
        """A script that maps, with the records in in.jsonl. Return what a new session of it prints."""
        with open(name, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        path = os.pathsep.join([os.path.dirname(os.path.dirname(gpurun.__file__)), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              env={**os.environ, "PYTHONPATH": path}, check=False)
        return done.stdout + done.stderr


def package(name):
    """A package; None if it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


@unittest.skipUnless(cloudpickle, "SKIPPED: no cloudpickle: functions do not travel")
class Maps(Session):

    def numbers(self, function, **settings):
        return [record["n"] for record in gpurun.map(function, RECORDS, **CPU, **settings)]

    def test_functions(self):
        expected = [2 * i for i in range(50)]
        factor = 2
        settings = Settings(2)
        self.assertEqual(self.numbers(lambda batch: {"n": [factor * len(text) for text in batch["text"]]}), expected)
        self.assertEqual(self.numbers(functools.partial(lambda batch, by: {"n": [by * len(text) for text in batch["text"]]}, by=2)), expected)
        self.assertEqual(self.numbers(lambda batch: {"n": [settings.factor * Color.RED.value * len(text) for text in batch["text"]]}), expected)
        self.assertEqual(self.numbers(decorated), expected)
        self.assertEqual(self.numbers(Model), expected)
        self.assertEqual(self.numbers(Model, config={"size": 3}), [3 * n for n in expected])
        self.assertEqual(self.numbers([concurrent_free, lambda batch: {"n": [2 * n for n in batch["n"]]}]), expected)
        self.assertEqual(self.numbers(concurrent), list(range(50)))

    def test_setup(self):
        result = gpurun.map(with_setup, RECORDS, output="out.jsonl", **CPU)
        self.assertEqual({record["device"] for record in result}, {"cpu"})
        self.assertEqual(result.report["batch_size"], 7)
        self.assertIs(later, LOCK)

    def test_again(self):
        """The same function and data: a finished job returns its result, in another session too."""
        first = gpurun.map(Model, RECORDS, **CPU)
        self.assertTrue(first.output.startswith(self.folder))
        again = gpurun.map(Model, RECORDS, **CPU)
        self.assertEqual((first.output, first.report["started"]), (again.output, again.report["started"]))
        self.assertNotEqual(gpurun.map(Model, RECORDS[1:], **CPU).output, first.output)
        generated = gpurun.map(Model, iter(RECORDS), **CPU)
        self.assertFalse(generated.output.startswith(self.folder))  # cannot be read twice: temporary
        self.assertEqual(list(generated), list(first))

    def test_data_in_memory(self):
        """Data of this process are like files: types stay, and what has changed is found, also after failures."""
        import datetime, decimal
        rows = [{"t": datetime.datetime(2024, 1, 1), "d": decimal.Decimal("12345678901234567890.12"), "label": n} for n in (3, 4)]
        if importlib.util.find_spec("pyarrow") is None:
            self.skipTest("SKIPPED: no pyarrow")
        import pyarrow
        result = gpurun.map(lambda batch: {"n": [1] * len(batch), "label": ["cat"] * len(batch), "o": [{"a": []}] * len(batch)}, pyarrow.Table.from_pylist(rows), **CPU)
        self.assertEqual(list(result), [{**row, "label": "cat", "n": 1, "o": {"a": []}} for row in rows])
        self.assertEqual(list(gpurun.map(lambda batch: {"n": [len(one) for one in batch["b"]]}, [{"b": b"abc"}], **CPU)), [{"b": b"abc", "n": 3}])

        fails = lambda batch: {"v": [1 / n for n in batch["n"]]}
        records = [{"n": 0}, {"n": 1}]
        for _ in range(2):
            with self.assertRaisesRegex(gpurun.RecordsFailed, "1 of 2 records failed"):
                gpurun.map(fails, records, output="v.jsonl", **CPU)
        self.assertEqual(len(gpurun.map(fails, records, output="v.jsonl", allow_failed=True, batch_size=1, **CPU)), 2)
        with self.assertRaisesRegex(gpurun.UsageError, "the data are not the same; force=True replaces it"):
            gpurun.map(fails, records[1:], output="v.jsonl", **CPU)
        self.assertEqual(len([name for name in os.listdir(".") if "-data-" in name]), 1)  # for a retry
        gpurun.retry("v.jsonl", lambda batch: {"v": [0.0] * len(batch)})
        self.assertEqual([name for name in os.listdir(".") if "-data-" in name], [])

    def test_urls(self):
        """Files that URLs name are downloaded; a broken download continues, and what has changed is other data."""
        import gzip, hashlib, http.server
        served = {"/a.jsonl.gz": gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(1000))), "/b.jsonl": b'{"n": 7}\n'}
        double, asked = (lambda batch: {"m": [2 * n for n in batch["n"]]}), []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = served.get(self.path.split("?")[0])
                if body is None:
                    return self.send_error(404)
                at = self.headers.get("Range")
                asked.append((self.path, at))
                begin = 0 if at is None else int(at[len("bytes="):-1])
                self.send_response(206 if at else 200)
                self.send_header("Content-Length", str(len(body) - begin))
                if "unversioned" not in self.path:
                    self.send_header("ETag", '"%s"' % hashlib.md5(body).hexdigest())
                self.end_headers()
                broken = at is None and self.path == "/a.jsonl.gz" and asked.count((self.path, at)) == 2  # the first one asks for the version alone
                self.wfile.write(body[begin:len(body) // 2 if broken else None])

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = "http://127.0.0.1:%d" % server.server_port
            for _ in range(2):
                result = gpurun.map(double, [url + "/a.jsonl.gz", url + "/b.jsonl?v=1"], output="urls.jsonl", **CPU)
                self.assertEqual([record["m"] for record in result], [2 * n for n in [*range(1000), 7]])
            self.assertIn(("/a.jsonl.gz", "bytes=%d-" % (len(served["/a.jsonl.gz"]) // 2)), asked)
            self.assertEqual([name for name in os.listdir(".") if "-data-" in name], [])
            self.assertEqual(list(gpurun.map(double, url + "/b.jsonl", **CPU)), [{"n": 7, "m": 14}])
            served["/b.jsonl"] = b'{"n": 8}\n'
            self.assertEqual(list(gpurun.map(double, url + "/b.jsonl", **CPU)), [{"n": 8, "m": 16}])
            with self.assertRaisesRegex(gpurun.UsageError, "the data are not the same"):
                gpurun.map(double, [url + "/a.jsonl.gz", url + "/b.jsonl?v=1"], output="urls.jsonl", **CPU)
            with self.assertRaisesRegex(OSError, "cannot read http://.*/c.jsonl: 404 Not Found"):
                gpurun.map(double, url + "/c.jsonl", **CPU)
            with self.assertRaisesRegex(OSError, "which version of the file"):
                gpurun.map(double, url + "/b.jsonl?unversioned", **CPU)
            server.shutdown()
        with self.assertRaisesRegex(OSError, "cannot read nope://x/y.jsonl"):
            gpurun.map(double, "nope://x/y.jsonl", **CPU)
        if importlib.util.find_spec("fsspec") is None:
            self.skipTest("SKIPPED: no fsspec")
        import fsspec
        with fsspec.open("memory://data/z.jsonl", "wb") as file:
            file.write(b'{"n": 9}\n')
        self.assertEqual(list(gpurun.map(double, "memory://data/z.jsonl", **CPU)), [{"n": 9, "m": 18}])

    def test_copies_in_the_cache(self):
        """A copy of data that remains does not make its result look used later than it was."""
        gpurun.map(lambda batch: {"v": [1 / n for n in batch["n"]]}, [{"n": n} for n in (0, 1)], allow_failed=True, **CPU)
        gpurun.map(lambda batch: {"v": [2 / n for n in batch["n"]]}, [{"n": n} for n in (0, 3)], allow_failed=True, **CPU)
        copies = [os.path.join(folder, name) for folder, _, names in os.walk("cache") for name in names if "-data-" in name]
        self.assertEqual(len(copies), 2)
        self.assertLess(max(map(os.path.getmtime, copies)), time.time())
        self.assertNotEqual(*map(os.path.getmtime, copies))

    def test_kinds_of_data(self):
        """What people have is read as they mean it."""
        class Items:  # as data sets of torch are
            def __len__(self):
                return 2

            def __getitem__(self, i):
                return {"text": ["a", "bc"][i] if i < 2 else 1 / 0}

        texts, expected = ["a", "bc"], [{"text": "a", "n": 1}, {"text": "bc", "n": 2}]
        given = {"columns": {"text": texts}, "items": Items(), "records": map(dict, [{"text": "a"}, {"text": "bc"}]), "empty": []}
        refused = {}
        pandas, polars, numpy, pyarrow, datasets, torch = map(package, ("pandas", "polars", "numpy", "pyarrow", "datasets", "torch"))
        if pandas:
            series = pandas.Series(texts, name="text")
            given.update(series=series, columns_series={"text": series})
            refused["a Series, whose values have no name: pass a dict of columns"] = pandas.Series(texts)
            refused["pass one of its tables, data..train.."] = {"train": pandas.DataFrame(), "test": pandas.DataFrame()}
            if pyarrow:
                refused["values of several types: .*column m.*Convert it: frame.astype"] = pandas.DataFrame({"text": texts, "m": [1, "x"]})
        if polars:
            frame = polars.DataFrame({"text": texts})
            given.update(lazy=frame.lazy(), polars_series=frame["text"])
        if numpy:
            given.update(array={"text": numpy.array(texts)}, rows=numpy.array([("a",), ("bc",)], [("text", "U2")]))
            refused["a ndarray, whose values have no name"] = numpy.array(texts)
        if pyarrow:
            import pyarrow.dataset
            table = pyarrow.table({"text": texts})
            given.update(dataset=pyarrow.dataset.dataset(table), scanner=pyarrow.dataset.dataset(table).scanner(), reader=table.to_reader())
            refused["a ChunkedArray, whose values have no name"] = table["text"]
        if datasets:
            data = datasets.Dataset.from_dict({"text": texts})
            given.update(streamed=data.to_iterable_dataset(), split=data)
            refused["a DatasetDict: pass one of its splits, data..train.. or data..test.."] = datasets.DatasetDict({"train": data, "test": data})
            refused["an IterableDatasetDict: pass one of its splits, data..train.."] = datasets.IterableDatasetDict({"train": data.to_iterable_dataset()})
            refused["a Column, whose values have no name"] = data["text"]
        if torch:
            refused["a DataLoader, which makes batches of its own: pass its data set"] = torch.utils.data.DataLoader(Items())
        for kind, data in given.items():
            with self.subTest(kind):
                self.assertEqual(list(gpurun.map(concurrent_free, data, **CPU)), [] if kind == "empty" else expected)
        for message, data in refused.items():
            with self.subTest(message), self.assertRaisesRegex(TypeError, message):
                gpurun.map(concurrent_free, data, **CPU)

    def test_streams_of_bytes(self):
        """A generator of records with bytes, and a stream of images, reach the function as bytes."""
        def sizes(batch):
            return {"n": [len(one) for one in batch["b"]], "kind": [type(one).__name__ for one in batch["b"]]}

        if not package("pyarrow"):
            self.skipTest("SKIPPED: no pyarrow")
        result = gpurun.map(sizes, ({"i": i, "b": b"\xff" * (i % 7)} for i in range(2500)), output="out.parquet", **CPU)
        self.assertEqual([(record["i"], record["n"], record["kind"]) for record in result], [(i, i % 7, "bytes") for i in range(2500)])
        with self.assertRaisesRegex(TypeError, "records with bytes must make a table with the columns and types of the first ones, but: the member 'new' is new"):
            gpurun.map(sizes, ({"b": b"1", **({"new": 1} if i == 2000 else {})} for i in range(2500)), output="new.jsonl", **CPU)
        datasets = package("datasets")
        if datasets and package("PIL"):
            features = datasets.Features({"b": datasets.Image()})
            data = datasets.Dataset.from_dict({"b": [{"bytes": b"abc", "path": None}] * 3}, features=features).to_iterable_dataset()
            result = gpurun.map(sizes, data, output="images.parquet", **CPU)
            self.assertEqual(([record["n"] for record in result], result.to_dataset().features["b"]), ([3] * 3, features["b"]))

    FLOATS = staticmethod(lambda batch: {"s": [1 if n < 1500 else 0.5 for n in batch["n"]]})

    def misfit(self, records):
        """Values of another type than the first ones fail, and the message names the option that fits them."""
        advice = r'has int64; a retry keeps this type: gpurun.retry\(result, corrected\), .* compute all records again with force=True, and name all columns of the output: columns="…,s:float64"; they are'
        with self.assertRaisesRegex(gpurun.RecordsFailed, advice) as raised:
            gpurun.map(self.FLOATS, records, output="s.parquet", **CPU)
        return raised.exception.result

    def test_misfit(self):
        """The option computes all records again."""
        records = [{"n": n} for n in range(2000)]
        self.assertEqual(self.misfit(records).failed, 500)
        self.assertEqual(gpurun.map(self.FLOATS, records, output="s.parquet", columns=["n", "s:float64"], force=True, **CPU).failed, 0)

    @unittest.skipUnless(package("pyarrow"), "SKIPPED: no pyarrow: results in Parquet are not read")
    def test_misfit_only(self):
        """Other ways compute only the failed records."""
        failed = [record for record in self.misfit([{"n": n} for n in range(2000)]) if "_error" in record]
        rest = gpurun.map(self.FLOATS, failed, output="rest.parquet", reprocess=True, columns=["n", "s:float64"], **CPU)
        self.assertEqual([record["s"] for record in rest], [0.5] * 500)
        whole = gpurun.retry("s.parquet", lambda batch: {"s": [7] * len(batch)}, **CPU)
        self.assertEqual([record["s"] for record in whole], [1] * 1500 + [7] * 500)

    def test_imports_inside(self):
        """A module that the function imports by itself was edited: results are computed again, or refused."""
        text = """
            import gpurun
            def inside(batch):
                from helper_inside import add
                return {"m": [add(n) for n in batch["n"]]}
            print([r["m"] for r in gpurun.map(inside, [{"n": 1}], gpus="cpu:1", progress=False, **%s)])
        """
        for added, there, cached in ((1, "[2]", "[2]"), (2, "the kernel's files changed", "[3]")):
            with open("helper_inside.py", "w") as file:
                file.write("def add(n):\n    return n + %d\n" % added)
            self.assertIn(there, self.script("session.py", text % {"output": "inside.jsonl"}))
            for _ in range(2):
                self.assertIn(cached, self.script("session.py", text % {}))
        self.assertEqual(len(os.listdir(gpurun._map.cache_folder())), 1)

    def test_same_call_twice(self):
        """The same call in two processes at a time: the second waits for the first, and returns its result."""
        text = """
            import gpurun, time
            def slow(batch):
                time.sleep(0.3)
                return {"m": [2 * n for n in batch["n"]]}
            print([r["m"] for r in gpurun.map(slow, [{"n": i} for i in range(4)], output="both.jsonl", gpus="cpu:1", batch_size=1, progress=False)])
        """
        outputs = []
        threads = [threading.Thread(target=lambda name=name: outputs.append(self.script(name, text))) for name in ("one.py", "two.py")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(outputs, ["[0, 2, 4, 6]\n"] * 2)

    def test_threads(self):
        """Threads may map at the same time, also the same function over the same data."""
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)
        records = [{"n": n} for n in range(3000)]
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda i: len(gpurun.map(concurrent_numbers, records, output="%d.jsonl" % (i % 2), **CPU)), range(4)))
        self.assertEqual(results, [3000] * 4)

    def test_resume(self):
        """A session that is killed, and one that was edited, in a script."""
        text = """
            import gpurun, os, signal, sys, time
            records = [{"n": i} for i in range(2000)]
            FACTOR = %d

            def slow(batch):   # %s
                if os.path.exists("slow"):
                    time.sleep(0.05)
                return {"m": [FACTOR * n for n in batch["n"]]}

            saved = gpurun._data.source(records).saved(gpurun._map.copy_of(os.path.abspath("out.jsonl.gpurun")))
            for event in gpurun._map.attempt(lambda: [gpurun.start(gpurun._function.Function(slow).save("out.jsonl.gpurun"), saved, "out.jsonl",
                                                      gpus="cpu:1", batch_size=10, chunk_records=10)])[0] if os.path.exists("slow") else []:
                if event["event"] == "chunk_done":
                    os.kill(os.getpid(), signal.SIGKILL)
            result = gpurun.map(slow, records, output="out.jsonl", gpus="cpu:1", batch_size=10, chunk_records=10, progress=False, **%s)
            print(result.report["resumed"] > 0, sum(r["m"] for r in result))
        """
        open("slow", "w").close()
        self.script("session.py", text % (3, "", {}))
        os.remove("slow")
        printed = self.script("session.py", text % (4, "", {}))
        self.assertIn("Since that job, the function has changed:\n  process.globals.FACTOR was 3, is 4", printed)
        self.assertIn('accept_changes="kernel" to keep what is done', printed)
        self.assertEqual(self.script("session.py", text % (3, "another comment, in another session", {})), "True %d\n" % (3 * 1999 * 1000))

    def test_interrupted(self):
        """^C, and the stop button of a notebook: no handler of errors goes on, and the same call resumes."""
        records = [{"n": i} for i in range(100)]

        def interrupting(batch):
            if batch["n"][0] == 20 and os.path.exists("session"):
                with open("session") as file:
                    os.kill(int(file.read()), signal.SIGINT)
                time.sleep(1)
            return {"m": [2 * n for n in batch["n"]]}

        with open("session", "w") as file:
            file.write(str(os.getpid()))
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))  # a shell ignores it in the background
        call = functools.partial(gpurun.map, interrupting, records, output="out.jsonl", batch_size=10, chunk_records=10, gpus="cpu:1")
        with self.assertRaisesRegex(KeyboardInterrupt, "make the same call"):
            call()
        os.remove("session")
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            result = call()
        self.assertEqual(printed.getvalue(), "")  # no notice that the input was touched: it is a copy
        self.assertGreater(result.report["resumed"], 0)
        self.assertEqual([record["m"] for record in result], list(range(0, 200, 2)))

    def test_stops_with_its_session(self):
        """A job ends when the process is killed that has started it."""
        self.script("session.py", """
            import gpurun, os, signal
            with open("sleep.py", "w") as file:
                file.write("import time\\ndef process(batch): time.sleep(600)")
            for event in gpurun.start("sleep.py", [{"n": 1}], "out.jsonl", gpus="cpu:1", drain_timeout="1s"):
                if event["event"] == "worker_ready":
                    os.kill(os.getpid(), signal.SIGKILL)
        """)
        for _ in range(100):
            if gpurun.report("out.jsonl").get("state") != "running":
                break
            time.sleep(0.1)
        else:
            self.fail("the job still runs")

    def test_traceback(self):
        with self.assertRaises(gpurun.KernelError) as raised:
            gpurun.map(lambda batch: 1 / 0, RECORDS, **CPU)
        self.assertIn("gpurun.map(lambda batch: 1 / 0, RECORDS, **CPU)", str(raised.exception.__cause__))
        self.assertIn("ZeroDivisionError", str(raised.exception))

    def test_retry(self):
        with self.assertRaises(gpurun.RecordsFailed) as raised:
            gpurun.map(lambda batch: {"n": [1 / (len(text) - 3) for text in batch["text"]]}, RECORDS, output="out.jsonl", batch_size=1, **CPU)
        result = raised.exception.result
        self.assertEqual((result.failed, [(one["record"], one["kind"]) for one in result.failures()]), (1, [(3, "batch")]))
        corrected = gpurun.retry(result, lambda batch: {"n": [0.0 for text in batch["text"]]}, gpus="cpu:1", progress=False)
        self.assertEqual([record["n"] for record in corrected][3], 0.0)
        self.assertEqual(gpurun.report(corrected)["report"]["failed"], 0)
        self.assertEqual((len(corrected), corrected.succeeded, corrected.failed, list(corrected.failures())), (50, 50, 0, []))

    def test_retry_fails(self):
        """The result of a retry is of all records, also if some fail again."""
        fails = lambda batch: {"n": [1 / (len(text) % 10) for text in batch["text"]]}
        for settings in {}, {"work_dir": "jobs"}:
            output = "%d.jsonl" % len(settings)
            result = gpurun.map(fails, RECORDS, output=output, allow_failed=True, **CPU, **settings)
            again = gpurun.retry(result, lambda batch: {"n": [1 / (len(text) % 20) for text in batch["text"]]}, allow_failed=True, **CPU, **settings)
            with self.assertRaises(gpurun.RecordsFailed) as raised:
                gpurun.retry(again, **CPU, **settings)
            for one in again, raised.exception.result:
                self.assertEqual((one.succeeded, one.failed, len(one), len(list(one))), (47, 3, 50, 50))
                self.assertEqual([failure["record"] for failure in one.failures()], [0, 20, 40])

    def test_bytes(self):
        """Columns of bytes, and of bytes and path, reach the function as bytes, and tables pass them on."""
        try:
            import pyarrow
        except ImportError:
            self.skipTest("SKIPPED: no pyarrow")
        with open("picture", "wb") as file:
            file.write(b"12345")
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        table = pyarrow.table({"a": pyarrow.array([b"\xff\x00", b""]), "b": pyarrow.array([{"bytes": b"abc", "path": None}, {"bytes": None, "path": "picture"}], kind)})
        for output in ("out.parquet", "out.arrow", None):
            result = gpurun.map(lambda batch: {"n": [len(a) + len(b) for a, b in zip(batch["a"], batch["b"])]}, table, output=output, fetch_root=".", **CPU)
            self.assertEqual(result.to_arrow().column("n").to_pylist(), [5, 5])
            self.assertEqual(result.to_arrow().column("a").to_pylist(), [b"\xff\x00", b""])
            self.assertEqual(result.to_arrow().column("b").type, kind)
            self.assertTrue(result.to_arrow().column("b").equals(table.column("b")))

    def test_relative_paths(self):
        """Data of this process name files as its open() finds them, wherever the output is."""
        os.makedirs("pictures")
        with open("pictures/a", "wb") as file:
            file.write(b"12345")
        lengths = lambda batch: {"n": [len(one) for one in batch["image"]]}
        rows = [{"path": "pictures/a"}]
        for output in (None, os.path.join(self.folder, "elsewhere", "out.jsonl")):
            for data in (rows, iter(rows)):
                self.assertEqual(list(gpurun.map(lengths, data, output=output, fetch="image=path", force=True, **CPU)), [{"path": "pictures/a", "n": 5}])
        with self.assertRaisesRegex(gpurun.RecordsFailed, "outside the root folder"):
            gpurun.map(lengths, [{"path": __file__}], fetch="image=path", **CPU)
        os.makedirs("other/pictures")
        with open("other/pictures/a", "wb") as file:
            file.write(b"1234567")
        os.chdir("other")
        self.assertEqual(list(gpurun.map(lengths, rows, fetch="image=path", **CPU)), [{"path": "pictures/a", "n": 7}])

        datasets = package("datasets")
        if datasets is None or package("PIL") is None:
            self.skipTest("SKIPPED: no datasets, or no Pillow")
        for path in ("pictures/a", os.path.join(self.folder, "pictures", "a")):
            data = datasets.Dataset.from_dict({"image": [path]}).cast_column("image", datasets.Image(decode=False))
            for given in (data, data.to_iterable_dataset()):
                with self.subTest(path=path, data=type(given).__name__):
                    self.assertEqual([one["n"] for one in gpurun.map(lengths, given, **CPU)], [7 if path == "pictures/a" else 5])

    def test_refused_data(self):
        """Data that workers would get in another form are refused."""
        records = ({"d": None if i < 2 else b"x"} for i in range(4))
        with self.assertRaisesRegex(TypeError, "record 3 of the stream has bytes in the member 'd'"):
            gpurun.map(concurrent_free, records, output="v.jsonl", **CPU)
        with self.assertRaisesRegex(TypeError, "output is a file"):
            gpurun.map(concurrent_free, [{"text": "a"}], output="-", **CPU)
        with self.assertRaisesRegex(TypeError, "a shard needs output="):
            gpurun.map(concurrent_free, [{"text": "a"}], shard="0/2", **CPU)
        with self.assertRaisesRegex(TypeError, "partial of the class Model: pass the class, and config="):
            gpurun.map(functools.partial(Model, 1), [{"text": "a"}], **CPU)
        if package("datasets"):
            import datasets
            data = datasets.Dataset.from_dict({"text": ["a"]}).with_transform(lambda batch: {"text": [text * 3 for text in batch["text"]]})
            with self.assertRaisesRegex(TypeError, "the Dataset has a transform"):
                gpurun.map(concurrent_free, data, **CPU)

    def test_refused_copy(self):
        """A call that is refused leaves no copy of the data."""
        for factor in 1, 2:
            def scaled(batch):
                return {"m": [factor * n for n in batch["n"]]}
            with self.assertRaises(gpurun.JobError) if factor > 1 else contextlib.nullcontext():
                gpurun.map(scaled, [{"n": 1}], output="out.jsonl", **CPU)
        self.assertEqual([name for name in os.listdir(".") if "-data-" in name], [])

    def test_traceback_of_a_record(self):
        """The exception of failed records shows where the user's function failed."""
        def divide(batch):
            return {"m": [1 // n for n in batch["n"]]}
        with self.assertRaises(gpurun.RecordsFailed) as caught:
            gpurun.map(divide, [{"n": n % 50} for n in range(200)], output="out.jsonl", **CPU)
        self.assertIn("in divide", str(caught.exception.__cause__))

    def test_messages(self):
        """Lists of objects are lists of objects again in a Dataset."""
        if not package("datasets"):
            self.skipTest("SKIPPED: no datasets")
        import datasets
        messages = [[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], []]
        data = datasets.Dataset.from_dict({"messages": messages, "n": [1, 2]})
        result = gpurun.map(lambda batch: {"m": [{"n": n} for n in batch["n"]]}, data, output="v.parquet", **CPU).to_dataset()
        self.assertEqual(result["messages"][:], messages)
        self.assertEqual(result["m"][:], [{"n": 1}, {"n": 2}])
        self.assertEqual(result.features["messages"], data.features["messages"])

    def test_refused_again(self):
        """An error that has nothing to do with a changed function does not mention one, and names options as Python writes them."""
        data = [{"n": 1}]
        gpurun.map(lambda batch: {"m": [1] * len(batch)}, data, output="out.jsonl", **CPU)
        for given, message in (("out.jsonl", "the output out.jsonl is the input itself; name another file$"), ("torn.jsonl.gz", 'pass bad_input="skip" to continue')):
            with open("torn.jsonl.gz", "wb") as file:
                file.write(b"\x1f\x8b\x08\x00")
            with self.subTest(given), self.assertRaisesRegex(gpurun.JobError, message):
                gpurun.map(lambda batch: {"m": [2] * len(batch)}, given, output="out.jsonl", force=True, **CPU)

    def test_length(self):
        """The length of a result is the number of its records, also if a record gives several, or none, or is written to another file."""
        several = lambda batch: [[{"m": 1 // n, "k": k} for k in range(n)] if n != 3 else [] for n in batch["n"]]
        data = [{"n": n} for n in (0, 1, 2, 3)]
        for output in ["v.jsonl", "v.jsonl.gz"] + (["v.parquet", "v.arrow", "v/"] if package("pyarrow") else []):
            for errors in (None, "errors.jsonl"):
                with self.subTest(output=output, errors=errors):
                    result = gpurun.map(several, data, output=output, errors=errors, force=True, allow_failed=True, **CPU)
                    self.assertEqual(len(result), len(list(result.records())))

    def test_without_pyarrow(self):
        """A result in columns needs pyarrow to be read, and says so; the job does not."""
        result = gpurun.map(concurrent_free, [{"text": "abc"}], output="v.parquet", **CPU)
        self.assertEqual(result.succeeded, 1)
        with self.mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
            for read in (len, list, lambda one: one.to_arrow(), lambda one: one.to_pandas()):
                with self.assertRaisesRegex(ImportError, "reading .*v.parquet needs the package pyarrow|pandas"):
                    read(result)

    def test_home_folder(self):
        """Paths may begin with ~, as they may for pandas."""
        with open("in.jsonl", "w", encoding="utf-8") as file:
            file.write('{"text": "abc"}\n')
        with self.mock.patch.dict(os.environ, {"HOME": self.folder}):
            for data in ("~/in.jsonl", ["~/in.jsonl"], "~/*.jsonl"):
                self.assertEqual(list(gpurun.map(concurrent_free, data, output="~/out.jsonl", force=True, **CPU)), [{"text": "abc", "n": 3}])

    def test_features(self):
        """The images and labels of a Dataset are images and labels in the result."""
        try:
            import datasets, PIL
        except ImportError:
            self.skipTest("SKIPPED: no datasets, or no Pillow")
        features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["cat", "dog"]), "n": datasets.Value("int64")})
        data = datasets.Dataset.from_dict({"image": [{"bytes": b"abc", "path": None}] * 3, "label": [0, 1, 0], "n": [1, 2, 3]}, features=features)
        for given in (data, data.filter(lambda record: record["n"] > 1)):
            call = functools.partial(gpurun.map, lambda batch: {"n": [str(n) for n in batch["n"]]}, given, **CPU)
            for result in (call(), call()):
                made = result.to_dataset()
                self.assertEqual((made.features["image"], made.features["label"], made.features["n"].dtype), (features["image"], features["label"], "string"))
                self.assertEqual(made[0]["image"]["bytes"], b"abc")

    def test_several_machines(self):
        """Shards computed one after the other, and merged."""
        with open("in.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in RECORDS)
        with self.assertRaisesRegex(TypeError, "several machines read files"):
            gpurun.submit(Model, RECORDS, "out.jsonl", nodes=2)
        script = gpurun.submit(Model, "in.jsonl", "out.jsonl", nodes=2, gpus_per_node=1, print=True)
        kernel = re.search(r"--kernel=(\S+kernel\.py)", script).group(1)
        for shard in ("0/2", "1/2"):
            gpurun.run(kernel, "in.jsonl", "out.jsonl", shard=shard, no_claim=True, **CPU)
        self.assertEqual([record["n"] for record in gpurun.merge("out.jsonl")], [2 * i for i in range(50)])

    def test_modules(self):
        """A module of the user's: found by workers, part of the identity, refused if its file has changed."""
        with open("own_module.py", "w", encoding="utf-8") as file:
            file.write("LIMIT = 5\ndef cut(text): return text[:LIMIT]\n")
        with open("own_registry.py", "w", encoding="utf-8") as file:  # what a module fills is no change of its file
            file.write("KINDS, CACHE = {}, {}\nNAMES = {}\nMORE = {'a': 1}\nMORE.update(b=2)\ndef kind(name):\n    NAMES[name] = len(NAMES)\n    return NAMES[name]\n")
        with self.mock.patch.object(sys, "path", [self.folder, *sys.path]):
            importlib.invalidate_caches()
            import own_module
            self.addCleanup(sys.modules.pop, "own_module")
            import own_registry
            self.addCleanup(sys.modules.pop, "own_registry")
            own_registry.kind("a")
            Function(lambda batch: own_registry.kind)
            cut = Function(lambda batch: {"n": [len(own_module.cut(text)) for text in batch["text"]]})
            self.assertEqual(self.numbers(lambda batch: {"n": [len(own_module.cut(text)) for text in batch["text"]]}), [min(i, 5) for i in range(50)])
            for text, part in [("LIMIT = 6\ndef cut(text): return text[:LIMIT]\n", "LIMIT"), ("LIMIT = 5\ndef cut(text): return text[1:LIMIT]\n", "cut")]:
                with open("own_module.py", "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(gpurun.CannotTravel, "own_module was imported before %s changed" % part):
                    Function(lambda batch: own_module.cut)
            for text in "LIMIT = 5\ndef cut(text): return text[:LIMIT]\nclass Kind:\n    size = 5\n", "LIMIT = 5\ndef cut(text): return text[:LIMIT]\nMORE = 1 + 1\n":
                with open("own_module.py", "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(gpurun.CannotTravel, "own_module was imported before its file changed"):
                    Function(lambda batch: own_module.cut)
            with open("own_module.py", "w", encoding="utf-8") as file:  # saved again, as it was
                file.write("LIMIT = 5\ndef cut(text): return text[:LIMIT]\n")
            self.assertEqual(Function(lambda batch: {"n": [len(own_module.cut(text)) for text in batch["text"]]}).digest, cut.digest)
            with open("own_module.py", "a", encoding="utf-8") as file:
                file.write("LIMIT = 2 * 3\n")
            os.utime("own_module.py", (time.time() + 1e6,) * 2)  # the clock of another machine
            with self.assertRaisesRegex(gpurun.CannotTravel, "own_module was imported before"):
                Function(lambda batch: own_module.cut)
            os.utime("own_registry.py", (time.time() + 1e6,) * 2)
            Function(lambda batch: own_registry.kind)
            importlib.reload(own_module)
            self.assertNotEqual(Function(lambda batch: {"n": [len(own_module.cut(text)) for text in batch["text"]]}).digest, cut.digest)

    def test_submodules(self):
        """A module below a package that only nested code names is imported by workers, too."""
        os.makedirs("own_package")
        for name, text in ("__init__", ""), ("part", "def length(text):\n    return len(text)\n"):
            with open("own_package/%s.py" % name, "w", encoding="utf-8") as file:
                file.write(text)
        self.assertIn("[2, 1]", self.script("script.py", """
            import gpurun, own_package.part, xml.sax.saxutils
            def lengths(batch):
                return {"n": [own_package.part.length(xml.sax.saxutils.unescape(text)) for text in batch["text"]]}
            print([record["n"] for record in gpurun.map(lengths, [{"text": "ab"}, {"text": "&lt;"}], gpus="cpu:1", progress=False)])
        """))

    def test_namespace_packages(self):
        """Modules in a folder without __init__.py, and compiled ones, are modules of the user's, too."""
        os.makedirs("own_space/below")
        with open("own_space/below/part.py", "w", encoding="utf-8") as file:
            file.write("def length(text):\n    return len(text)\n")
        compiled = importlib.util.find_spec("xxlimited")
        if compiled is not None and compiled.origin:
            shutil.copy(compiled.origin, self.folder)
        self.assertIn("[2, 1]", self.script("script.py", """
            import gpurun, own_space.below.part
            try:
                import xxlimited
            except ImportError:
                xxlimited = None
            def lengths(batch):
                return {"n": [own_space.below.part.length(text) * (1 if xxlimited is None else xxlimited.foo(0, 1)) for text in batch["text"]]}
            print([record["n"] for record in gpurun.map(lengths, [{"text": "ab"}, {"text": "c"}], gpus="cpu:1", progress=False)])
        """))

    def test_moved_modules(self):
        """A job resumes after the folder of its modules has moved, as it does in each checkout of a scheduler."""
        script = """
            import os, own_part, gpurun
            def length(batch):
                return {"n": [own_part.length(text) for text in batch["text"]]}
            try:
                gpurun.map(length, "%s/in.jsonl", output="%s/out.jsonl", gpus="cpu:1", progress=False, max_time=os.environ["MAX_TIME"])
            except gpurun.Stopped:
                print("stopped")
        """ % (self.folder, self.folder)
        with open("in.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in RECORDS)
        for folder, limit, want in ("first", "1ms", "stopped\n"), ("second", "1h", ""):
            os.makedirs(folder)
            with open(os.path.join(folder, "own_part.py"), "w", encoding="utf-8") as file:
                file.write("def length(text):\n    return len(text)\n")
            with self.mock.patch.dict(os.environ, {"MAX_TIME": limit}):
                self.assertEqual(self.script(os.path.join(folder, "script.py"), script), want)
            shutil.rmtree(folder)
        with open("out.jsonl", encoding="utf-8") as lines:
            self.assertEqual([json.loads(line)["n"] for line in lines], list(range(50)))

    def test_module_under_another_name(self):
        """Airflow loads files under names that workers do not find: what such a file defines travels by value."""
        with open("dag.py", "w", encoding="utf-8") as file:
            file.write("UNIT = 2\n\ndef scale(n):\n    return n * UNIT\n\nclass Count:\n    def __init__(self, ctx):\n        super().__init__()\n"
                       "    def __call__(self, batch):\n        return {'n': [scale(len(text)) for text in batch['text']]}\n")
        digests = set()
        for name in "unusual_prefix_1_dag", "unusual_prefix_2_dag":
            spec = importlib.util.spec_from_file_location(name, "dag.py")
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            self.addCleanup(sys.modules.pop, name)
            spec.loader.exec_module(module)
            digests.add(Function(module.Count).digest)
        self.assertEqual(self.numbers(module.Count), [2 * i for i in range(50)])
        self.assertEqual(len(digests), 1)
        module.UNIT = 3
        self.assertNotIn(Function(module.Count).digest, digests)

    def test_wrong_data(self):
        for data, error, message in [(["a", "b c"], gpurun.UsageError, "input a does not exist; a list of texts is a list of files: for records, pass"),
                                     ("a", gpurun.UsageError, "input a does not exist$"), (3, TypeError, "the data is 3: pass records"), (None, TypeError, "the data is None: pass records"),
                         ({"text": "a"}, TypeError, r"the data is a dict, but data\['text'\] is a str, not a column of values: pass a list of records, \[data\]"),
                         ({}, TypeError, "the data is an empty dict"), ({"text": ["a"], "n": []}, TypeError, "the columns of the data have different lengths: text 1, n 0"),
                         ([1], TypeError, 'record 1 is an int, not a dict: pass {"value": value} for each value'), ([Pair("a", 1)], TypeError, r"record 1 is a Pair, not a dict: pass record._asdict\(\)"),
                         ([Settings(1)], TypeError, "record 1 is a Settings, not a dict: pass dataclasses.asdict"), ((text for text in ["a"]), TypeError, "record 1 is the text 'a', not a dict: pass {\"text\": text}"),
                         (b"a", TypeError, "the data is b'a': pass records"), (twice, TypeError, "such as what the function returns")]:
            with self.assertRaisesRegex(error, message):
                gpurun.map(Model, data, **CPU)
        with self.assertRaisesRegex(gpurun.UsageError, "python=/nosuch does not run: No such file or directory"):
            gpurun.map(Model, RECORDS, python="/nosuch", **CPU)

    def test_interpreter(self):
        with open("python", "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 2.7\n")
        os.chmod("python", 0o755)
        with self.assertRaisesRegex(gpurun.UsageError, r"is Python 2\.7, but this is %d\.%d" % sys.version_info[:2]):
            gpurun.map(Model, RECORDS, python=os.path.abspath("python"), **CPU)


def concurrent_numbers(batch):
    return {"m": [2 * n for n in batch["n"]]}


def concurrent_free(batch):
    return {"n": [len(text) for text in batch["text"]]}


class Identities(Session):

    def test_refused(self):
        """What cannot travel is named, before work starts."""
        local = open(os.devnull, "rb")
        self.addCleanup(local.close)
        values = {"deep": [{"lock": LOCK}]}
        for function, name in [(lambda batch: LOCK, "LOCK is a _thread.lock"), (lambda batch: local, "local is a _io.BufferedReader"),
                               (lambda batch: values, re.escape("values['deep'][0]['lock'] is a _thread.lock")), (lambda batch, x=LOCK: x, r"\(x=…\) is a _thread.lock")]:
            with self.assertRaisesRegex(gpurun.CannotTravel, name + ".*__init__|" + name):
                Function(function)
            self.assertTrue(Function(function, identity="mine").digest)
        for wrong, message in [({"batch_size": 0}, "batch_size must be an integer above 0"), ({"size": 1}, "no setting size"), ({"setup": 1}, "setup must be a function")]:
            with self.assertRaisesRegex(TypeError, message):
                gpurun.kernel(**wrong)

    def test_many_values(self):
        """Long lists and dicts are compared as one: each value counts, with its type, and nothing that differs between sessions."""
        def digest(value, at=2999, interned=False):
            return self.script("many.py", """
                import sys
                from gpurun._function import Function
                words = ["w%%d" %% n for n in range(3000)]
                if %r:
                    words = [sys.intern(one) for one in words]
                words[%d] = %s
                places = {one: n for n, one in enumerate(words)}
                def process(batch):
                    return {"m": [places[words[n]] for n in batch["n"]]}
                print(Function(process).digest)
            """ % (interned, at, value)).strip()

        first = digest("'x'")
        self.assertRegex(first, "^[0-9a-f]{64}$")
        self.assertEqual(digest("'x'", interned=True), first)
        self.assertEqual(len({first, *(digest(value) for value in ("'y'", "1", "1.0", "True", "None", "b'x'")), digest("'x'", at=0)}), 8)

    def test_same(self):
        """Sessions agree about a function, whatever its layout and comments; every change counts."""
        def digest(**changes):
            text = {"comment": "", "factor": "2", "body": "n * FACTOR", "default": "1", "inner": "a + 1", "member": "1", **changes}
            return self.script("one.py", """
                from gpurun._function import Function
                FACTOR = %(factor)s
                WORDS = {"b", "a", "c"}
                def used(a): %(comment)s
                    return %(inner)s
                class Config:
                    kind = %(member)s
                config = Config()
                def process(batch, x=%(default)s):
                    return {"m": [used(%(body)s) for n in batch["n"] if config.kind and "a" in WORDS]}
                print(Function(process).digest)
            """ % text).strip()

        first = digest()
        self.assertRegex(first, "^[0-9a-f]{64}$")
        self.assertEqual(digest(comment="# more"), first)
        self.assertEqual(digest(body="n  *  FACTOR"), first)
        changed = [digest(factor="3"), digest(body="n * FACTOR * 1"), digest(default="2"), digest(inner="a + 2"), digest(member="2")]
        self.assertEqual(len({first, *changed}), 6)

    def test_lambdas(self):
        one, two = (lambda batch: 1), (lambda batch: 2)
        self.assertNotEqual(Function(one).digest, Function(two).digest)

    # What people have in __main__: a name, a value, and what a worker computes with it; or why it is refused.
    VALUES = """
        import abc, array, collections, dataclasses, datetime, decimal, enum, fractions, functools, io, itertools, ipaddress, logging, operator, os, pathlib
        import random, re, sys, threading, types, typing, uuid, weakref
        from gpurun._function import Function

        @functools.lru_cache(maxsize=None)
        def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        def plain(n): return n + 1
        def doubled(function):
            @functools.wraps(function)
            def inner(n): return 2 * function(n)
            return inner
        @doubled
        def decorated(n): return n
        class Color(enum.Enum): RED = 1
        class Level(enum.IntFlag): A = 1; B = 2
        class Word(str, enum.Enum): ONE = "one"
        @dataclasses.dataclass
        class Point:
            x: int = 1
            tags: list = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(frozen=True)
        class Frozen: x: int = 1
        class Pair(typing.NamedTuple):
            a: int
            b: str = "x"
            def both(self): return [self.a, self.b]
        Old = collections.namedtuple("Old", "a b")
        class Typed(typing.TypedDict): a: int
        class Slots:
            __slots__ = ("a",)
            def __init__(self): self.a = 5
        class Meta(type):
            def __new__(kind, name, bases, members): return super().__new__(kind, name, bases, {**members, "y": 7})
        class WithMeta(metaclass=Meta): x = 1
        class Abstract(abc.ABC):
            @abc.abstractmethod
            def get(self): pass
        class Concrete(Abstract):
            def get(self): return 8
        class Super(Concrete):
            def get(self): return super().get() + 1
        class Kinds:
            @functools.cached_property
            def cached(self): return 9
            @property
            def property(self): return 10
            @staticmethod
            def static(): return 11
            @classmethod
            def of_class(cls): return cls.__name__
            def method(self): return self.cached
        class Counted(dict):
            def total(self): return sum(self.values())
        class Text(str):
            def twice(self): return self + self
        class Own(Exception): pass
        class Cycle: pass
        cycle = Cycle(); cycle.me = cycle
        T = typing.TypeVar("T")

        table = [
            ("cached_function", fibonacci, lambda v: v(20)), ("decorated", decorated, lambda v: v(3)), ("partial", functools.partial(plain, 1), lambda v: v()),
            ("lambda_one", lambda n: n + 1, lambda v: v(1)), ("function", plain, lambda v: v(1)), ("bound", Kinds().method, lambda v: v()), ("bound_builtin", "-".join, lambda v: v("ab")),
            ("static", Kinds.static, lambda v: v()), ("of_class", Kinds.of_class, lambda v: v()), ("descriptor", str.upper, lambda v: v("a")), ("property", Kinds(), lambda v: v.property + v.cached),
            ("enum", Color, lambda v: v.RED.value), ("member", Color.RED, lambda v: v.name), ("flags", Level.A | Level.B, lambda v: v.value), ("word", Word.ONE, lambda v: v.value),
            ("point", Point(3), lambda v: v.x), ("point_class", Point, lambda v: v(4).x), ("frozen", Frozen(2), lambda v: v.x), ("pair", Pair(1), lambda v: v.both()), ("pair_class", Pair, lambda v: v(2).both()),
            ("old", Old(1, 2), lambda v: v.b), ("old_class", Old, lambda v: v(1, 2).a), ("typed", Typed, lambda v: v(a=1)), ("slots", Slots(), lambda v: v.a), ("metaclass", WithMeta, lambda v: v.x + v.y),
            ("concrete", Concrete(), lambda v: v.get()), ("super", Super(), lambda v: v.get()), ("dict_of_own", Counted(a=1, b=2), lambda v: v.total()), ("text_of_own", Text("ab"), lambda v: v.twice()),
            ("exception", Own, lambda v: v("x").args), ("raised", Own("x"), lambda v: v.args), ("cycle", cycle, lambda v: v.me is v),
            ("regex", re.compile("a+", re.I), lambda v: bool(v.match("A"))), ("path", pathlib.Path("/a"), str), ("datetime", datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), str),
            ("timedelta", datetime.timedelta(1), str), ("decimal", decimal.Decimal("1.5"), str), ("fraction", fractions.Fraction(1, 3), str), ("uuid", uuid.UUID(int=1), str), ("address", ipaddress.ip_address("1.2.3.4"), str),
            ("logger", logging.getLogger("x"), lambda v: v.name), ("generic", typing.List[int], str), ("optional", typing.Optional[int], str), ("literal", typing.Literal["a"], str), ("builtin_generic", list[int], str),
            ("variable", T, str), ("any", typing.Any, str), ("defaultdict", collections.defaultdict(list, a=[1]), lambda v: v["b"]), ("counter", collections.Counter("aab"), dict), ("ordered", collections.OrderedDict(a=1), dict),
            ("deque", collections.deque([1], 2), lambda v: [*v, v.maxlen]), ("namespace", types.SimpleNamespace(a=1), lambda v: v.a), ("proxy", types.MappingProxyType({"a": 1}), dict), ("item", operator.itemgetter("a"), lambda v: v({"a": 1})),
            ("array", array.array("d", [1, 2]), list), ("random", random.Random(1), lambda v: v.random()), ("buffer", io.BytesIO(b"a"), lambda v: v.read().decode()), ("set", {"b", "a"}, sorted), ("nested", {"a": [(1, {2})]}, str),
            ("module", os.path, lambda v: v.basename("/a/b")), ("environ", os.environ, lambda v: v.get("NOSUCH")), ("long", list(range(5000)), len),
        ]
        refused = [("lock", threading.Lock()), ("event", threading.Event()), ("local", threading.local()), ("file", open(os.devnull)), ("generator", (n for n in [1])), ("view", memoryview(b"a")), ("reference", weakref.ref(cycle)),
                   ("output", sys.stdout), ("single", functools.singledispatch(plain))]
        if isinstance(typing.NewType, type):
            table.append(("new_type", typing.NewType("N", int), lambda v: v(3)))
        try:
            import numpy
        except ImportError:
            numpy = None
        if numpy:
            table += [("scalar", numpy.float32(1.5), float), ("dtype", numpy.dtype("f4"), str), ("type", numpy.float32, lambda v: float(v(2))), ("date", numpy.datetime64("2024-01-01"), str), ("ufunc", numpy.sqrt, lambda v: float(v(4))),
                      ("objects", numpy.array([{"a": 1}, None], object), lambda v: v.tolist()), ("record", numpy.zeros(2, [("a", "i4")]), lambda v: v["a"].tolist()), ("generator_of_numbers", numpy.random.default_rng(1), lambda v: float(v.random())),
                      ("masked", numpy.ma.array([1, 2], mask=[0, 1]), lambda v: v.tolist())]
        try:
            import pandas, pyarrow
        except ImportError:
            pandas = None
        if pandas:
            table += [("series", pandas.Series([1, 2], index=["a", "b"]), lambda v: int(v["b"])), ("index", pandas.Index([1]), list), ("na", pandas.NA, str), ("schema", pyarrow.schema([("a", "int64")]), str), ("column", pyarrow.array([1]), lambda v: v.to_pylist())]
    """

    def test_values(self):
        """Everyday values travel and are the same in another session; what cannot travel is refused by its name."""
        text = self.VALUES + """
        print(*sorted((name, Function(lambda batch: value).digest) for name, value, _ in table), sep="\\n")
        for name, value in refused:
            try:
                exec("%s = value; Function(eval('lambda batch: %s'))" % (name, name))
                print(name, "was not refused")
            except gpurun.CannotTravel as error:
                if not str(error).startswith(name) or "__init__(self, ctx)" not in str(error):
                    print(name, "was refused with", error)
        """
        text = text.replace("import abc", "import gpurun, abc")
        outputs = []
        for seed in "1", "2":
            with self.mock.patch.dict(os.environ, {"PYTHONHASHSEED": seed}):
                outputs.append(self.script("values.py", text))
        self.assertEqual(*outputs)
        self.assertRegex(outputs[0], r"\A(\('\w+', '[0-9a-f]{64}'\)\n)+\Z")
        digests = re.findall("[0-9a-f]{64}", outputs[0])
        self.assertEqual(len(digests), len(set(digests)))

    @unittest.skipUnless(cloudpickle, "SKIPPED: no cloudpickle: functions do not travel")
    def test_values_travel(self):
        """Workers compute with them what this process does."""
        output = self.script("travel.py", self.VALUES.replace("import abc", "import gpurun, abc") + """
        def compute(batch):
            return {"all": [{name: repr(use(value)) for name, value, use in table}] * len(batch)}
        here = compute([1])["all"][0]
        for name, value, use in table:  # a random number generator goes on
            if name.startswith("random") or name.startswith("generator") or name == "buffer":
                value.seed(1) if name == "random" else value.seek(0) if name == "buffer" else value.bit_generator.__setstate__(numpy.random.default_rng(1).bit_generator.__getstate__())
        there = next(iter(gpurun.map(compute, [{}], gpus="cpu:1", progress=False)))["all"]
        for name in here:
            if here[name] != there[name]:
                print(name, here[name], there[name])
        print(len(here) == len(table) == len(there))
        """)
        self.assertEqual(output, "True\n", output)

    def test_changes_of_classes(self):
        """Whatever code may read of a value or a class is part of it."""
        def digest(old="", new=""):
            text = """
                import dataclasses, enum, re, typing
                from gpurun._function import Function
                words = re.compile("|".join("word%d" % i for i in range(100)) + "|last")
                class Color(enum.Enum):
                    RED = 1
                    def shown(self): return self.name + "shown"
                    @property
                    def size(self): return len("size")
                    @classmethod
                    def of(cls, n): return cls(n or len("of"))
                class Prompt:
                    '''Translate the prompt.'''
                    count: "first"
                    def __hash__(self): return len("hashed")
                @dataclasses.dataclass
                class Row:
                    text: str = dataclasses.field(default="x", metadata={"unit": "metres"})
                    items: list = dataclasses.field(default_factory=lambda: ["item"])
                class Typed(typing.TypedDict):
                    name: str
                def process(batch):
                    return words, Color, Prompt, Row, Typed
                print(Function(process).digest)
            """
            self.assertIn(old, text)
            return self.script("classes.py", text.replace(old, new) if old else text)

        first = digest()
        self.assertEqual(digest(), first)
        changes = [("|last", "|other"), ('shown"', 'other"'), ('"size"', '"longer"'), ('"of"', '"other"'), ("the prompt", "another"), ('"first"', '"second"'),
                   ('"hashed"', '"other"'), ("metres", "feet"), ('["item"]', "[]"), ("name: str", "name: int"), ("text: str", "text: object")]
        self.assertEqual(len({first, *(digest(*change) for change in changes)}), 1 + len(changes))
        numpy, pandas = package("numpy"), package("pandas")
        if numpy:
            array = lambda name: Function(functools.partial(lambda value, batch: value, numpy.zeros(2, [(name, "i4")]))).digest
            self.assertNotEqual(array("a"), array("b"))
        if pandas and package("pyarrow"):
            frame = pandas.DataFrame({"a": [1]})
            digests = [Function(lambda batch: frame).digest]
            frame.attrs["unit"] = "metres"
            digests.append(Function(lambda batch: frame).digest)
            frame.columns.name = "member"
            digests.append(Function(lambda batch: frame).digest)
            self.assertEqual(len(set(digests)), 3)

    def test_equal_tuples(self):
        """Whether Python has made one object of equal constants says nothing."""
        def digest(a, b):
            return Function(lambda batch: (a, b)).digest
        self.assertEqual(digest((1, 2), (1, 2)), digest((1, 2), tuple([1, 2])))

    def test_named(self):
        """identity= says when a function is the same, not that it travels."""
        torch = types.ModuleType("torch")
        torch.nn = types.SimpleNamespace(Module=type("Module", (), {"__module__": "torch"}))
        torch.Tensor = type("Tensor", (), {"__module__": "torch", "is_cuda": True, "device": types.SimpleNamespace(type="cuda")})
        pipeline = type("Pipeline", (), {"__module__": "json"})()
        pipeline.model = torch.nn.Module()
        with self.mock.patch.dict(sys.modules, {"torch": torch}):
            for value, message in (torch.nn.Module(), "value is a model"), (pipeline, "value is a model"), ([torch.nn.Module()], "value.0. is a model"), (torch.Tensor(), "value is a tensor"):
                for identity in None, "v1":
                    with self.subTest(message=message, identity=identity), self.assertRaisesRegex(gpurun.CannotTravel, message):
                        Function(lambda batch: value, identity)
        self.assertTrue(Function(lambda batch: LOCK, "v1").digest)

    def test_changes_of_values(self):
        """A change of a part of a value that its text does not show is a change."""
        class Named(str):
            def shown(self):
                return self

        named = Named("a")
        first = Function(lambda batch: named).digest
        Named.shown = lambda self: self + "!"
        self.assertNotEqual(Function(lambda batch: named).digest, first)
        values = collections.defaultdict(list)
        first = Function(lambda batch: values).digest
        values.default_factory = dict
        self.assertNotEqual(Function(lambda batch: values).digest, first)
        pandas = package("pandas")
        if pandas and package("pyarrow"):
            frame = pandas.DataFrame({"a": [1, 2]}, index=["x", "y"])
            first = Function(lambda batch: frame).digest
            frame.index = ["x", "z"]
            self.assertNotEqual(Function(lambda batch: frame).digest, first)

    def test_arrays(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("SKIPPED: no numpy")
        weights = numpy.ones(1000)
        first = Function(lambda batch: weights).digest
        weights[999] = 2
        self.assertNotEqual(Function(lambda batch: weights).digest, first)

    def test_described(self):
        described = Function(lambda batch: {"n": [len(text) for text in batch["text"]]}).described()
        self.assertEqual(described, {"async": False, "inputs": ["text"], "only_inputs": True})
        self.assertEqual(Function(Model).described(), {"async": False, "inputs": ["text"], "only_inputs": True})
        self.assertFalse(Function(lambda batch: batch).described()["only_inputs"])
        self.assertTrue(Function(concurrent).described()["async"])
        json.dumps(Function(Model).tree)


if __name__ == "__main__":
    unittest.main()
