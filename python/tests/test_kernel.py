"""gpurun.run_kernel, and that a job with the same kernel writes the same."""

import asyncio
import json
import os
import sys
import tempfile
import unittest

import gpurun

HARD = [
    {"id": 1, "text": "aé😀\"", "f": 1.5, "m": 1, "b": True, "v": [1, 2], "w": [1, 0.5], "j": {"x": [1]}, "n": None},
    {"id": 2, "text": "", "f": 2e3, "m": 0.5, "b": False, "v": [-3, 4], "w": [0, 1e-3], "j": "q", "n": "x"},
    {"id": 9007199254740993, "text": "b", "f": -0.0, "m": 7, "b": True, "v": [0, 0], "w": [1, 1], "j": [], "n": 1},
    {"id": 4, "b": False},
    [1, 2],
    '"text"',  # a line
]

# Kernels whose results cover every kind of column and verdict.
KERNELS = {
    "columns": "def process(batch): return {'i': batch['id'], 's': [t.upper() for t in batch['text']], 'f': batch['f'], 'b': batch['b'],\n"
               "  'v': batch['v'], 'w': batch['w'], 'j': batch['j'], 'n': batch['n'], 'k': [repr(batch[k]) for k in 'mvwfb'][0:1] * len(batch)}",
    "types": "def process(batch): return {'t': [repr([batch.get(k) for k in ('id', 'text', 'f', 'm', 'b', 'v', 'w', 'j', 'n', 'zz')])] * len(batch)}",
    "numpy": "import numpy\ndef process(batch):\n  a = numpy.array([[0.1, 1/3], [1e-9, 3e38]], 'f4')[:len(batch)]\n"
             "  return {'a': numpy.resize(a, (len(batch), 2)), 'x': numpy.resize(a, (len(batch), 2, 3)), 'e': numpy.zeros((len(batch), 0))}",
    "nan": "def process(batch): return {'x': [float('nan')] * len(batch), 'y': [[float('inf'), 1.0]] * len(batch)}",
    "lines": "def process(batch):\n  for i, r in enumerate(batch):\n    yield [r, None, ValueError('no'), [{'x': 1}, {'x': 2}], {'_error': 'bad'}, []][i % 6]",
    "patched": "def process(batch):\n  for r in batch:\n    if 'id' in r: r['id'] = [1, {'a': 2.5}]\n  return batch",
    "missing": "def process(batch): return {'x': [len(t) for t in batch['text']]}",
    "prepare": "def prepare(batch): return batch['text']\ndef process(batch, texts): return {'x': [t * 2 for t in texts]}",
    "keys": "def process(batch): return {'k': [sorted(batch.keys())] * len(batch)}",
    "empty": "def process(batch): return {}",
}


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Same(unittest.TestCase):
    """run_kernel returns what a job writes."""

    def test_other_function(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "other.py")
            with open(path, "w") as file:
                file.write("import json\ndef shout(batch): return {}\n")
            with self.assertRaisesRegex(gpurun.ResultError, r"as in FILE.py:shout \(it defines shout\)"):
                gpurun.run_kernel(path, [{}])

    def test_same_as_a_job(self):
        for name, source in KERNELS.items():
            if "numpy" in source:
                try:
                    import numpy  # noqa: F401
                except ImportError:
                    continue
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                kernel = write(folder, "kernel.py", source)
                # The order of gpurun's batch is the file's, so that both see one batch.
                result = gpurun.run(kernel, HARD, allow_failed=True, gpus="cpu:1", chunk_records=len(HARD))
                self.assertEqual(strip(gpurun.run_kernel(kernel, HARD)), strip(result.records()))

    def test_same_as_a_job_if_the_caller_uses_numpy(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("SKIPPED: numpy is not installed")
        look = "process = lambda batch: {'t': [type(batch[name]).__name__ for name in 'nmv']}"
        for kernel, helper, want in (
                (look, "", "list"),
                ("import json, gpurun\n" + look, "", "list"),
                ("from helper import x\n" + look, "x = 1", "list"),
                ("import numpy\n" + look, "", "ndarray"),
                ("def setup(ctx): import numpy\n" + look, "", "ndarray"),
                ("from numpy import array\n" + look, "", "ndarray"),
                ("import helper\n" + look, "import numpy as np", "ndarray"),
                ("from helper import f\n" + look, "from numpy import sqrt\ndef f(): pass", "ndarray")):
            with self.subTest(kernel + helper), tempfile.TemporaryDirectory() as folder:
                write(folder, "helper.py", helper)
                path = write(folder, "kernel.py", kernel)
                sys.modules.pop("helper", None)
                sys.modules.pop("kernel", None)
                lines = gpurun.run_kernel(path, [{"n": 1, "m": 0.5, "v": [1, 2]}] * 3)
                self.assertEqual(lines[0]["t"], want)
                result = gpurun.run(path, [{"n": 1, "m": 0.5, "v": [1, 2]}] * 3, gpus="cpu:1", chunk_records=3)
                self.assertEqual(lines, list(result.records()))

    def test_nan_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel = write(folder, "kernel.py", "def process(batch): return {'x': [1.0, float('nan')]}")
            first, second = gpurun.run_kernel(kernel, [{}, {}], nan="error")
            self.assertEqual(first, {"x": 1.0})
            self.assertIn("NaN", second["_error"]["message"])


def strip(lines):
    """Lines without the name of the kernel, which is a path."""
    lines = [json.loads(json.dumps(line)) for line in lines]
    for line in lines:
        if "_error" in line:
            line["_error"].pop("step", None)
    return lines


class Kernels(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def kernel(self, source, name="kernel.py"):
        return write(self.folder.name, name, source)

    def test_life(self):
        path = self.kernel("log = []\ndef setup(ctx): log.append((ctx.device, ctx.config))\n"
                           "def process(batch): return {'log': [log] * len(batch)}\ndef close(): log.append('closed')")
        argv, entries = sys.argv, list(sys.path)
        with gpurun.Kernel(path, config={"a": 1}) as kernel:
            self.assertEqual(kernel.run([{}]), [{"log": [["cpu", {"a": 1}]]}])
            self.assertEqual(len(kernel.run([{}, {}, {}], batch_size=2)), 3)
        self.assertIs(sys.argv, argv)
        self.assertEqual(sys.path, entries)

    def test_functions_and_classes(self):
        path = self.kernel("def double(batch): return {'x': [2 * n for n in batch['n']]}\n"
                           "class Times:\n  def __init__(self, by): self.by = by\n  def __call__(self, batch):\n"
                           "    batch['x'] = [self.by * n for n in batch['n']]\n    return batch")
        self.assertEqual(gpurun.run_kernel(path + ":double", [{"n": 1}]), [{"n": 1, "x": 2}])
        self.assertEqual(gpurun.run_kernel(path + ":Times", [{"n": 1}], config={"by": 3}), [{"n": 1, "x": 3}])
        self.assertEqual(gpurun.run_kernel(lambda batch: {"x": batch["n"]}, [{"n": 1}]), [{"n": 1, "x": 1}])
        self.assertEqual(gpurun.run_kernel([path + ":double", lambda batch: {"y": batch["x"]}], [{"n": 1}]), [{"n": 1, "x": 2, "y": 2}])
        with self.assertRaisesRegex(gpurun.ResultError, "no function or class treble"):
            gpurun.run_kernel(path + ":treble", [{}])

    def test_exceptions_are_raised(self):
        with self.assertRaises(ZeroDivisionError):
            gpurun.run_kernel(self.kernel("def process(batch): 1 / 0"), [{}])
        with self.assertRaisesRegex(gpurun.ResultError, "process returned None"):
            gpurun.run_kernel(self.kernel("def process(batch): pass"), [{}])

    def test_async(self):
        path = self.kernel("import asyncio, gpurun\nasync def setup(ctx):\n  global lock\n  lock = asyncio.Lock()\n"
                           "async def process(record):\n  async with lock: await asyncio.sleep(0)\n  n = record['n']\n"
                           "  if n == 2: raise gpurun.Fail('too large')\n  if n == 3: raise gpurun.Retry('busy', after=1)\n"
                           "  if n == 6: raise gpurun.Fail\n  if n == 4: 1 / 0\n  return [{'x': n}, None, None, None, None, record][n]")

        def check():
            self.assertEqual(gpurun.run_kernel(path, [{"n": 0}, {"n": 1}, {"n": 5}]), [{"n": 0, "x": 0}, {"n": 5}])
            failed = gpurun.run_kernel(path, [{"n": 2}, {"n": 3}, {"n": 6}])
            self.assertEqual([line["_error"]["message"] for line in failed], [
                "too large", "busy", 'the kernel rejected the record without a reason: gpurun.Fail("reason") gives one'])
            with self.assertRaises(ZeroDivisionError):
                gpurun.run_kernel(path, [{"n": 4}])

        check()

        async def notebook():  # an event loop runs already
            check()

        asyncio.run(notebook())

    def test_annotations(self):
        path = self.kernel("import gpurun\nfrom gpurun import Batch, Fail\ndef process(batch: gpurun.Batch):\n"
                           "  return [Fail('no') if record['n'] else record for record in batch]")
        self.assertEqual(gpurun.run_kernel(path, [{"n": 0}, {"n": 1}])[1]["_error"]["message"], "no")
        result = gpurun.run(path, [{"n": 0}, {"n": 1}], allow_failed=True, gpus="cpu:1")
        self.assertEqual([record.get("_error", {}).get("message") for record in result.records()], [None, "no"])

    def test_inputs(self):
        seen = []

        def process(batch):
            seen.append(list(map(dict, batch)))
            return batch

        path = write(self.folder.name, "in.jsonl", '{"a":1}\n\n{"a":2}\n')
        for records in ([{"a": 1}, {"a": 2}], ['{"a":1}', b'{"a":2}'], path):
            self.assertEqual(gpurun.run_kernel(process, records), [{"a": 1}, {"a": 2}])
        self.assertEqual(gpurun.run_kernel(process, []), [])
        with self.assertRaisesRegex(ValueError, "record 2 is not valid JSON: nope"):
            gpurun.run_kernel(process, [{}, "nope"])
        self.assertEqual(seen, [[{"a": 1}, {"a": 2}]] * 3)


if __name__ == "__main__":
    unittest.main()
