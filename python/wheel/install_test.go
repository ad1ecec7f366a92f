package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// command runs a command in a folder and returns its output.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	for _, entry := range env { // exec.Command would look in this process's PATH
		if folders, isPath := strings.CutPrefix(entry, "PATH="); isPath && !filepath.IsAbs(name) {
			name = lookUp(t, folders, name)
		}
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// lookUp finds a program in a PATH.
func lookUp(t *testing.T, folders, name string) string {
	t.Helper()
	for _, folder := range filepath.SplitList(folders) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not in %s", name, folders)
	return ""
}

// buildDist builds the wheel of this machine as make wheel does. Unless everything is tested, it
// is for this machine's glibc: what is compiled is shared with other tests.
func buildDist(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "OUT="+out, "ARCH="+runtime.GOARCH, "VERSION=v9.8.7")
	if os.Getenv("GPURUN_TEST_ALL") == "" {
		env = append(env, "SYSROOT=no")
	}
	command(t, root, env, filepath.Join(root, "scripts/wheel.sh"))
	wheels, _ := filepath.Glob(filepath.Join(out, "*.whl"))
	if len(wheels) != 1 {
		t.Fatalf("%q", wheels)
	}
	return wheels[0]
}

// TestInstalled installs the wheel into a fresh environment without Go in PATH and runs
// the Python example of the README and the tests of the package.
func TestInstalled(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("SKIPPED: builds the whole program, for Linux")
	}
	if exec.Command("python3", "-c", "import venv, ensurepip").Run() != nil {
		t.Skip("SKIPPED: no python3 with venv: the wheel is not installed")
	}
	wheel := buildDist(t)
	work := t.TempDir()
	environment(t, work)
	bin := filepath.Join(work, "env", "bin")
	env := []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + work, "GPURUN_LEASE_DIR=" + filepath.Join(work, "leases"), "XDG_STATE_HOME=" + filepath.Join(work, "state")}
	install(t, work, bin, wheel)

	t.Run("version", func(t *testing.T) {
		var facts struct {
			Version  string
			Arch     string
			Settings map[string]string
		}
		out := command(t, work, env, "gpurun", "version", "--json")
		if err := json.Unmarshal([]byte(out), &facts); err != nil || facts.Version != "v9.8.7" || facts.Arch != runtime.GOARCH || facts.Settings["-trimpath"] != "true" {
			t.Errorf("%s, %v", out, err)
		}
		if again := command(t, work, env, "python", "-m", "gpurun", "version", "--json"); again != out {
			t.Errorf("python -m gpurun: %s", again)
		}
	})
	t.Run("readme", func(t *testing.T) { runReadme(t, work, env) })
	t.Run("package", func(t *testing.T) {
		tests, err := filepath.Abs("../tests")
		if err != nil {
			t.Fatal(err)
		}
		out := command(t, work, env, "python", "-W", "error::ResourceWarning", "-m", "unittest", "discover", "-s", tests, "-p", "test_*.py")
		if !strings.Contains(out, "OK") {
			t.Error(out)
		}
	})
	t.Run("scaffold", func(t *testing.T) {
		command(t, work, env, "gpurun", "plugin", "new", "python", "words")
		// pytest may not be installed: call what it would call.
		command(t, filepath.Join(work, "words"), env, "python", "-c",
			"import test_kernel\nfor name in dir(test_kernel):\n    if name.startswith('test_'): getattr(test_kernel, name)()")
		command(t, filepath.Join(work, "words"), env, "gpurun", "try", "kernel.py", "sample.jsonl")
	})
	t.Run("clash", func(t *testing.T) { testClash(t, work, env, wheel) })
}

// environment creates a fresh environment in the folder env. It links to this machine's pip, if
// there is one, because to install another takes seconds.
func environment(t *testing.T, work string) {
	t.Helper()
	command(t, work, nil, "python3", "-m", "venv", "--without-pip", "env")
	python := filepath.Join(work, "env", "bin", "python")
	pip, err := exec.Command("python3", "-c", "import pip; print(pip.__path__[0])").Output()
	if err != nil {
		command(t, work, nil, python, "-m", "ensurepip")
		return
	}
	packages := command(t, work, nil, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	if err := os.Symlink(strings.TrimSpace(string(pip)), filepath.Join(strings.TrimSpace(packages), "pip")); err != nil {
		t.Fatal(err)
	}
}

// testClash installs the other project called gpurun, before and after ours, and follows the
// advice to remove it.
func testClash(t *testing.T, work string, env []string, wheel string) {
	pip := append([]string{filepath.Join(work, "env", "bin", "python"), "-m", "pip"}, pipFlags...)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.WaitDelay = work, env, time.Second
		if args[1] == "-m" && args[2] == "pip" { // it has settings in the environment
			cmd.Env = os.Environ()
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(append(pip, "install", "gpurun==0.1.1")...); err != nil {
		t.Skipf("SKIPPED: no index: the other project called gpurun is not installed: %v\n%s", err, out)
	}
	python := pip[0]
	out, err := run(python, "-m", "gpurun", "version")
	if err == nil || !strings.Contains(out, "is not the gpurun program: the package gpurun 0.1.1 is installed in this environment, too") {
		t.Errorf("%v: %s", err, out)
	}
	again := append(pip, "install", "--force-reinstall", "--no-deps", wheel)
	if out, err := run(again...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(t, filepath.Join(work, "uses.py"), "import gpurun\n\ndef process(batch: gpurun.Batch):\n    return {}\n")
	write(t, filepath.Join(work, "one.jsonl"), "{}\n")
	for _, args := range [][]string{{python, "-c", "import gpurun; gpurun.run_kernel"}, {filepath.Join(work, "env", "bin", "gpurun"), "run", "-k", "uses.py", "one.jsonl", "-o", "one.out.jsonl", "--gpus", "cpu:1"}} {
		if out, err := run(args...); err != nil || !strings.Contains(out, "pip uninstall -y gpurun && ") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	if out, err := run(append(pip, "uninstall", "-y", "gpurun")...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := run(python, "-m", "gpurun", "version"); err == nil || !strings.Contains(out, "install it with: "+python+" -m pip install --force-reinstall") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(again...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := run(python, "-W", "error", "-c", "import gpurun; gpurun.run_kernel"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// pipFlags keep pip quiet, and from waiting where there is no index.
var pipFlags = []string{"--quiet", "--disable-pip-version-check", "--no-input", "--retries=0", "--timeout=10"}

// install installs a wheel and, where the index can be reached, what it depends on.
func install(t *testing.T, work, bin, wheel string) {
	t.Helper()
	python, pip := filepath.Join(bin, "python"), append([]string{"-m", "pip"}, pipFlags...)
	cmd := exec.CommandContext(t.Context(), python, append(pip, "install", wheel)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("SKIPPED: no index: what the wheel depends on is not installed: %v\n%s", err, out)
		command(t, work, os.Environ(), python, append(pip, "install", "--no-index", "--no-deps", wheel)...)
		return
	}
	command(t, work, os.Environ(), python, append(pip, "check")...)
}

// runReadme writes the Python files of the README's section about a kernel in Python, and
// runs its commands and tests.
func runReadme(t *testing.T, work string, env []string) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## A kernel in Python\n")
	section, _, _ = strings.Cut(section, "\n## ")
	input := `{"text":"ab"}` + "\n" + `{"text":""}` + "\n"
	write(t, filepath.Join(work, "in.jsonl"), input)
	files, commands := snippets(section)
	for name, text := range files {
		write(t, filepath.Join(work, name), text)
	}
	if len(files) < 2 || len(commands) < 1 {
		t.Fatalf("the section has the files %q and the commands %q", files, commands)
	}
	for _, line := range commands {
		command(t, work, env, "sh", "-ec", line)
	}
	for name := range files {
		if module, isTest := strings.CutPrefix(strings.TrimSuffix(name, ".py"), "test_"); isTest {
			command(t, work, env, "python", "-c", "import test_"+module+" as t\nfor n in dir(t):\n    if n.startswith('test_'): getattr(t, n)()")
		}
	}
	out, err := os.ReadFile(filepath.Join(work, "out.jsonl"))
	if want := `{"text":"ab","length":2}` + "\n" + `{"text":"","length":0}` + "\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// fence is a block of code with its language.
var fence = regexp.MustCompile("(?ms)^```(python|sh)\n(.*?)^```$")

// snippets returns the Python files of a section, which start with a comment that names
// them, and the commands that start with gpurun.
func snippets(section string) (files map[string]string, commands []string) {
	files = make(map[string]string)
	for _, match := range fence.FindAllStringSubmatch(section, -1) {
		first, _, _ := strings.Cut(match[2], "\n")
		if name, isFile := strings.CutPrefix(first, "# "); match[1] == "python" && isFile {
			files[name] = match[2]
		} else if match[1] == "sh" {
			commands = append(commands, match[2])
		}
	}
	return files, commands
}
