"""Runs gpurun.map in real notebooks: a kernel process killed or interrupted in the middle of a job, and the cell again.

    notebooktest.py GPURUN FOLDER [CHROMIUM]

gpurun.map runs over a Dataset with a torch kernel, in nbclient and, if CHROMIUM is given, in JupyterLab. The result must equal
that of an undisturbed run, and the second run must resume. Pictures of the page are in FOLDER.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import nbclient
import nbformat

ROWS = 50_000
PORT = 9457

SETUP = """
import datasets, torch, gpurun, os
datasets.disable_progress_bars()
torch.set_num_threads(1)
print(os.getpid())
dataset = datasets.load_from_disk("texts")
"""

CELL = """
class Embed:
    def __init__(self, ctx):
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(256, 64)
        self.layer = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))

    @torch.no_grad()
    def __call__(self, batch):
        rows = []
        for text in batch["text"]:
            ids = torch.tensor(list(text.encode()))
            rows.append(self.layer(self.table(ids)).mean(0))
        return {"vector": torch.stack(rows)}

result = gpurun.map(Embed, dataset, output=%r, gpus="cpu:2", batch_size=64, checkpoint="1s")
print("resumed", result.report["resumed"], "of", result.report["in"])
"""


def notebook(*cells):
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells], metadata={"kernelspec": kernel})


def run(folder, *cells, when=None, send=signal.SIGKILL):
    """Run cells in a new kernel process, which gets a signal when the given condition holds. Return what the cells printed."""
    client = nbclient.NotebookClient(notebook(*cells), timeout=600, allow_errors=send == signal.SIGINT, resources={"metadata": {"path": folder}})
    killed = []
    if when is not None:
        def watch():
            while not killed:
                if when():
                    pid = next(int(one["text"]) for one in client.nb.cells[0].outputs if one.get("name") == "stdout")
                    os.kill(pid, send)
                    killed.append(pid)
                time.sleep(0.05)
        threading.Thread(target=watch, daemon=True).start()
    try:
        client.execute()
    except nbclient.exceptions.DeadKernelError:
        assert killed, "the kernel process died by itself"
    killed.append(0)
    return "".join(output.get("text", "") for cell in client.nb.cells for output in cell.outputs), client.nb


def halfway(path):
    journal = path + ".gpurun/journal"
    return os.path.exists(journal) and os.path.getsize(journal) > 4000


def in_nbclient(folder):
    path = os.path.join(folder, "vectors.parquet")
    run(folder, SETUP, CELL % "vectors.parquet", when=lambda: halfway(path))
    assert not os.path.exists(path), "the job had finished before the kernel process was killed"
    printed, finished = run(folder, SETUP, CELL % "vectors.parquet")
    assert int(printed.split("resumed ")[1].split()[0]) > 0, printed
    html = [output["data"]["text/html"] for cell in finished.cells for output in cell.outputs if "text/html" in output.get("data", {})]
    assert html and "CPU 0" in html[-1] and "CPU 1" in html[-1], html
    print("nbclient: killed, then", printed.strip().splitlines()[-1])
    return path


def interrupted(folder):
    """The signal of the notebook's stop button: the cell ends, and the same cell resumes the job in the same kernel process."""
    path = os.path.join(folder, "interrupted.parquet")
    cell = CELL % "interrupted.parquet"
    printed, finished = run(folder, SETUP, cell, cell, when=lambda: halfway(path), send=signal.SIGINT)
    errors = [output.get("ename") for one in finished.cells for output in one.outputs if output["output_type"] == "error"]
    assert errors == ["KeyboardInterrupt"], errors
    assert int(printed.split("resumed ")[1].split()[0]) > 0, printed
    print("nbclient: interrupted, then", printed.strip().splitlines()[-1])
    return path


def in_jupyterlab(folder, chromium):
    """The same as a person does it: JupyterLab in a browser."""
    from playwright.sync_api import sync_playwright
    path = os.path.join(folder, "lab.parquet")
    nbformat.write(notebook(SETUP + "open('pid', 'w').write(str(os.getpid()));", CELL % "lab.parquet"), os.path.join(folder, "lab.ipynb"))
    home = os.path.join(folder, "home")
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=%d" % PORT, "--ServerApp.port_retries=0",
                               "--IdentityProvider.token=", "--ServerApp.root_dir=" + folder], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "HOME": home, "JUPYTER_CONFIG_DIR": home, "JUPYTER_DATA_DIR": home, "IPYTHONDIR": home})
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"])
            page = browser.new_page(viewport={"width": 1200, "height": 1100})
            for _ in range(120):
                try:
                    page.goto("http://127.0.0.1:%d/lab/tree/lab.ipynb?reset" % PORT)
                    break
                except Exception:
                    time.sleep(0.5)
            page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=120_000)

            def choose(menu, entry):
                page.get_by_role("menuitem", name=menu, exact=True).click()
                page.get_by_text(entry, exact=True).click()

            page.wait_for_function("document.body.innerText.includes('| Idle')", timeout=120_000)
            choose("Run", "Run All Cells")
            page.wait_for_selector(".jp-OutputArea progress", timeout=180_000)
            while not halfway(path):
                time.sleep(0.05)
            page.screenshot(path=os.path.join(folder, "running.png"))
            with open(os.path.join(folder, "pid")) as file:
                os.kill(int(file.read()), signal.SIGKILL)
            assert not os.path.exists(path)
            page.locator(".jp-Dialog .jp-mod-accept").click(timeout=60_000)  # the kernel appears to have died
            choose("Kernel", "Restart Kernel and Run All Cells…")
            page.locator(".jp-Dialog .jp-mod-accept").click(timeout=60_000)
            page.wait_for_function("document.body.innerText.match(/resumed [1-9]\\d* of %d/)" % ROWS, timeout=300_000)
            page.screenshot(path=os.path.join(folder, "resumed.png"))
            browser.close()
    finally:
        server.terminate()
        server.wait()
    print("JupyterLab: killed, then resumed; see running.png and resumed.png in %s" % folder)
    return path


def main(folder, chromium=None):
    import datasets
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    datasets.disable_progress_bars()
    words = "the quick brown fox jumps over a lazy dog".split()
    texts = [" ".join(words[(i * k) % len(words)] for k in range(1, 4 + i % 9)) for i in range(ROWS)]
    datasets.Dataset.from_dict({"id": range(ROWS), "text": texts}).save_to_disk(os.path.join(folder, "texts"))
    paths = [in_nbclient(folder), interrupted(folder), *([in_jupyterlab(folder, chromium)] if chromium else [])]
    run(folder, SETUP, CELL % "undisturbed.parquet")
    with open(os.path.join(folder, "undisturbed.parquet"), "rb") as file:
        undisturbed = file.read()
    for path in paths:
        with open(path, "rb") as file:
            assert file.read() == undisturbed, "%s differs from an undisturbed run" % path
    print("equal to an undisturbed run, byte by byte")


if __name__ == "__main__":
    os.environ["PATH"] = os.path.dirname(os.path.abspath(sys.argv[1])) + os.pathsep + os.environ["PATH"]
    main(os.path.abspath(sys.argv[2]), *sys.argv[3:])
