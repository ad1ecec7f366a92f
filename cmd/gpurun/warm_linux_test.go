package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// warmTest runs try and run with --keep-warm, and counts the imports of an installed package.
type warmTest struct {
	*testing.T
	dir     string
	library string // the package's file
	env     []string
}

const slowPackage = `
import os
with open(os.path.join(os.path.dirname(__file__), "imports"), "a") as file:
    file.write("imported\n")
VALUE = 1
`

func newWarmTest(t *testing.T) *warmTest {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: no python3: warm interpreters are not tested")
	}
	dir, err := os.MkdirTemp("/tmp", "gw-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &warmTest{T: t, dir: dir, library: filepath.Join(dir, "site-packages", "slow_package.py")}
	w.env = append(os.Environ(), "GPURUN_TEST_COMMAND=1", "XDG_RUNTIME_DIR="+dir, "PYTHONPATH="+filepath.Dir(w.library), "PYTHONDONTWRITEBYTECODE=1")
	t.Cleanup(func() {
		w.command("warm", "stop")
		sockets := func() []string { list, _ := filepath.Glob(filepath.Join(dir, "gpurun", "warm-*")); return list }
		for deadline := time.Now().Add(20 * time.Second); len(sockets()) > 0 && time.Now().Before(deadline); {
			time.Sleep(50 * time.Millisecond)
		}
		if len(sockets()) > 0 {
			t.Error("the guard of warm interpreters did not end")
		}
		_ = os.RemoveAll(dir)
	})
	if err := os.Mkdir(filepath.Dir(w.library), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(w.library, slowPackage)
	w.write(filepath.Join(dir, "in.jsonl"), "{\"x\":1}\n{\"x\":2}\n")
	w.kernel("import slow_package", `"first"`)
	return w
}

func (w *warmTest) write(path, text string) {
	w.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// kernel writes a kernel file whose results are a value.
func (w *warmTest) kernel(imports, value string) {
	w.Helper()
	w.write(filepath.Join(w.dir, "k.py"), fmt.Sprintf("%s\nimport os\ndef process(batch):\n    return [{\"y\": %s} for r in batch]\n", imports, value))
}

func (w *warmTest) command(args ...string) string {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	file, err := os.Create(filepath.Join(w.dir, "shown")) // a file has an offset, unlike a pipe
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	out, _ := os.ReadFile(file.Name())
	if err != nil {
		w.Errorf("gpurun %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// try runs try and checks what it shows, and how often the package was imported so far.
func (w *warmTest) try(want string, imports int) {
	w.Helper()
	w.shows(w.command("try", "--keep-warm", "1m", "k.py", "in.jsonl", "-n", "1", "--gpus", "cpu:1"), want, imports)
}

func (w *warmTest) shows(out, want string, imports int) {
	w.Helper()
	list, _ := os.ReadFile(filepath.Join(filepath.Dir(w.library), "imports"))
	if got := strings.Count(string(list), "\n"); !strings.Contains(out, want) || got != imports {
		w.Errorf("%d imports, not %d; no %q in:\n%s", got, imports, want, out)
	}
}

// Installed packages are imported once for several commands. The kernel's file is not: an edit takes
// effect. What a package or an import may depend on leads to another interpreter.
func TestKeepWarm(t *testing.T) {
	w := newWarmTest(t)
	w.try("first", 1)
	w.kernel("import slow_package\nprint('printed by the file')", `"second"`)
	w.try("printed by the file\nline 1", 1)
	w.try("second", 1)
	if out := w.command("status"); !strings.Contains(out, "warm: k.py in ") || !strings.Contains(out, "ends in ") {
		t.Errorf("status shows\n%s", out)
	}

	w.kernel("import slow_package", `os.environ["GPURUN_WORKER_MARK"][:0] + os.getcwd()`)
	w.command("run", "--keep-warm", "-k", "k.py", "in.jsonl", "-o", "out.jsonl", "--gpus", "cpu:2")
	out, _ := os.ReadFile(filepath.Join(w.dir, "out.jsonl"))
	w.shows(string(out), w.dir, 1)

	w.env = append(w.env, "SOME_SETTING=1")
	w.kernel("import slow_package", `os.environ["SOME_SETTING"]`)
	w.try("1", 2) // another environment, another interpreter
	w.try("1", 2)

	time.Sleep(10 * time.Millisecond) // another time of modification
	w.write(w.library, slowPackage+"# changed\n")
	w.try("1", 3) // a fresh interpreter
	w.try("1", 4) // another warm one
	w.try("1", 4)

	w.kernel("import os\nos.environ['EARLY'] = 'set'\nimport slow_package", `os.environ["EARLY"]`)
	w.command("warm", "stop")
	w.try("set", 5) // the order of the file
	w.try("set", 6)
	if out := w.command("warm", "stop"); strings.Contains(out, "ended") {
		t.Errorf("a file that sets variables before its imports was kept warm: %s", out)
	}
}

// Files of the user are never imported by an interpreter that others use, even if they have the name
// of an installed package; a folder that others may enter is refused.
func TestWarmIsPrivate(t *testing.T) {
	w := newWarmTest(t)
	w.write(filepath.Join(w.dir, "slow_package.py"), "VALUE = 'of the user'\n")
	w.kernel("import slow_package", "slow_package.VALUE")
	for range 2 {
		w.try("of the user", 0)
	}
	w.command("warm", "stop")
	other := filepath.Join(w.dir, "other")
	if err := os.MkdirAll(filepath.Join(other, "gpurun"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(other, "gpurun"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "try", "--keep-warm", "k.py", "in.jsonl", "--gpus", "cpu:1")
	cmd.Dir, cmd.Env = w.dir, append(w.env, "XDG_RUNTIME_DIR="+other)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "only you can enter") {
		t.Errorf("%v: %s", err, out)
	}
}

// What a file cannot import, or hides, is reported as without the flag; a file that was mended is warm
// again.
func TestWarmAfterMistakes(t *testing.T) {
	w := newWarmTest(t)
	fails := func(imports, want string) {
		t.Helper()
		w.kernel(imports, "slow_package.VALUE")
		cmd := exec.Command(program, "try", "--keep-warm", "1m", "k.py", "in.jsonl", "-n", "1", "--gpus", "cpu:1")
		cmd.Dir, cmd.Env = w.dir, w.env
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, and no %q in:\n%s", err, want, out)
		}
	}
	fails("import slow_package\nthis is no Python", "SyntaxError")
	w.kernel("import slow_package", "slow_package.VALUE")
	w.try("1", 1)
	w.try("1", 1)

	broken := filepath.Join(filepath.Dir(w.library), "broken_package.py")
	w.write(broken, "import sys\nif 'seen' in vars(sys): raise ImportError('the second error')\nsys.seen = 1\nraise ImportError('the first error')\n")
	w.write(w.library, slowPackage)
	fails("import slow_package\nimport broken_package", "the first error")

	w.write(filepath.Join(w.dir, "user_settings.py"), "import os\nos.environ['LATER'] = 'set by the user'\n")
	w.write(w.library, slowPackage+"VALUE = os.environ.get('LATER')\n")
	w.kernel("import user_settings\nimport slow_package", "slow_package.VALUE")
	for range 2 { // the package is imported after the user's own module
		if out := w.command("try", "--keep-warm", "1m", "k.py", "in.jsonl", "-n", "1", "--gpus", "cpu:1"); !strings.Contains(out, "set by the user") {
			t.Errorf("%s", out)
		}
	}
}

// A relative PYTHONPATH starts at the job's folder, and Ctrl-C ends an interpreter that computes.
func TestWarmInAFolder(t *testing.T) {
	w := newWarmTest(t)
	if err := os.Mkdir(filepath.Join(w.dir, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.dir, "lib", "relative_module.py"), "VALUE = 'found'\n")
	w.env = append(w.env, "PYTHONPATH=site-packages:lib")
	w.kernel("import slow_package\nimport relative_module", "relative_module.VALUE")
	w.try("found", 1)
	w.try("found", 1)
	w.env = append(w.env, "PYTHONPATH=lib")
	w.kernel("import relative_module", "relative_module.VALUE")
	w.try("found", 1)

	w.env = append(w.env, "PYTHONPATH=site-packages")
	w.kernel("import slow_package\nimport time", "(open('begun', 'w').close(), time.sleep(600))")
	cmd := exec.Command(program, "try", "--keep-warm", "1m", "k.py", "in.jsonl", "-n", "1", "--gpus", "cpu:1")
	cmd.Dir, cmd.Env = w.dir, w.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(w.dir, "begun")); err == nil {
			break
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("Ctrl-C does not end try")
	}
}
