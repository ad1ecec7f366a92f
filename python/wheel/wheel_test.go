package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                   "1.2.3",
		"1.2":                      "1.2",
		"v1.2.3-4-gabcdef0":        "1.2.3.post4+gabcdef0",
		"v0.0.0+gabcdef0":          "0.0.0+gabcdef0",
		"v1.2.3-dirty":             "1.2.3+dirty",
		"v1.2.3-4-gabcdef0-dirty":  "1.2.3.post4+gabcdef0.dirty",
		"3401561":                  "0.dev0+g3401561",
		"3401561-dirty":            "0.dev0+g3401561.dirty",
		"dev":                      "0.dev0",
		"":                         "0.dev0",
		"release candidate number": "0.dev0",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("%q: %q, not %q", version, got, want)
		}
	}
}

// anyGlibc limits nothing.
var anyGlibc = glibc{9, 0}

// testProgram returns the running test, which is a Linux program.
func testProgram(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestArchive reads the wheel as pip does: every file is in RECORD with its size and
// checksum, and the program can be executed.
func TestArchive(t *testing.T) {
	path, err := build(testProgram(t), anyGlibc, "v1.2.3", "..", "../../SECURITY.md", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(filepath.Base(path), "gpurun_batch-1.2.3-py3-none-manylinux_2_") {
		t.Error(path)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := make(map[string][]byte)
	for _, file := range archive.File {
		reader, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil || files[file.Name] != nil {
			t.Errorf("%s: twice, or %v", file.Name, err)
		}
		files[file.Name] = append([]byte{}, data...)
		executable := file.Mode()&0o111 != 0
		if want := file.Name == "gpurun_batch-1.2.3.data/scripts/gpurun"; executable != want {
			t.Errorf("%s: mode %s", file.Name, file.Mode())
		}
	}
	rows, err := csv.NewReader(bytes.NewReader(files["gpurun_batch-1.2.3.dist-info/RECORD"])).ReadAll()
	if err != nil || len(rows) != len(files) {
		t.Fatalf("%d rows for %d files, %v", len(rows), len(files), err)
	}
	for _, row := range rows {
		data, there := files[row[0]]
		sum := sha256.Sum256(data)
		switch {
		case !there:
			t.Errorf("RECORD names %s, which is missing", row[0])
		case strings.HasSuffix(row[0], "/RECORD"):
		case row[1] != "sha256="+base64.RawURLEncoding.EncodeToString(sum[:]) || row[2] != strconv.Itoa(len(data)):
			t.Errorf("RECORD is wrong about %s: %q", row[0], row)
		}
	}
	for _, name := range []string{"gpurun/__init__.py", "gpurun/__init__.pyi", "gpurun/py.typed", "gpurun_runner/__init__.py", "gpurun_runner/kernel.py", "gpurun_batch-1.2.3.dist-info/licenses/LICENSE", "gpurun_batch-1.2.3.dist-info/licenses/SECURITY.md"} {
		if files[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestDescription: the wheel describes itself with the README, whose links work elsewhere.
func TestDescription(t *testing.T) {
	w := &wheel{version: "1.2.3"}
	if err := w.addMetadata("../../README.md", nil); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(w.files, func(e entry) bool { return strings.HasSuffix(e.name, "/METADATA") })
	header, body, _ := strings.Cut(string(w.files[i].data), "\n\n")
	if !strings.Contains(header, "\nDescription-Content-Type: text/markdown") || !strings.HasPrefix(body, "# gpurun\n") {
		t.Errorf("no description:\n%s\n\n%.100s", header, body)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(body, -1) {
		if !strings.HasPrefix(link[1], "https://") && !strings.HasPrefix(link[1], "#") {
			t.Errorf("a link that only works in the repository: %s", link[1])
		}
	}
}

// TestRunnerIsTheSame: the wheel contains the modules that the program embeds.
func TestRunnerIsTheSame(t *testing.T) {
	w := &wheel{}
	if err := w.addPackage("..", "gpurun_runner"); err != nil {
		t.Fatal(err)
	}
	for _, file := range w.files {
		name := filepath.Base(file.name)
		data, err := os.ReadFile(filepath.Join("../../plugins/python/runner", name))
		if name != "__init__.py" && (err != nil || !bytes.Equal(data, file.data)) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
}

func TestDeterministic(t *testing.T) {
	var wheels [2][]byte
	for i := range wheels {
		path, err := build(testProgram(t), anyGlibc, "v1.2.3", "..", "../../SECURITY.md", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if wheels[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(wheels[0], wheels[1]) {
		t.Error("two builds differ")
	}
}

func TestUnusablePrograms(t *testing.T) {
	for name, content := range map[string]string{"script": "#!/bin/sh\n", "empty": ""} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := build(path, anyGlibc, "v1", "..", "", t.TempDir()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGlibcVersions(t *testing.T) {
	for text, want := range map[string]glibc{"2.2.5": {2, 2}, "2.34": {2, 34}, "2.4": {2, 4}} {
		if got, err := parseGlibc(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := parseGlibc("PRIVATE"); err == nil {
		t.Error("no error")
	}
	if !(glibc{2, 4}).less(glibc{2, 34}) || (glibc{3, 0}).less(glibc{2, 34}) {
		t.Error("versions are compared as text")
	}
}

// compile builds a small program in C as Go builds gpurun: the linker accepts functions that no
// library has.
func compile(t *testing.T, cc, source string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "program.c"), source)
	program := filepath.Join(dir, "program")
	args := append([]string{"-O1", "-o", program, filepath.Join(dir, "program.c"), "-Wl,--unresolved-symbols=ignore-in-object-files", "-Wl,--export-dynamic", "-pthread", "-lresolv"}, flags...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// nvml asks for NVML as gpurun does, and for functions that moved into libc with glibc 2.34. One
// of them has another name in the headers since then.
const nvml = `#include <netinet/in.h>
#include <pthread.h>
#include <resolv.h>
int nvmlInit_v2(void);
static void *nothing(void *p) { return p; }
int main(int n, char **a) {
	pthread_t t;
	if (n > 9) return nvmlInit_v2() + res_search("", 0, 0, 0, 0);
	return pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0);
}`

// TestPrograms builds small programs in C that ask for NVML as gpurun does, for it too early, for
// a function that no library has, and for more than an old system offers.
func TestPrograms(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no C compiler: no programs with other needs")
	}
	for name, test := range map[string]struct {
		source, binding string
		newest          glibc
		want            string
	}{
		"lazy":   {nvml, "lazy", anyGlibc, ""},
		"now":    {nvml, "now", anyGlibc, "link it with -Wl,-z,lazy"},
		"absent": {"int res_nosearch(void); int main(int n, char **a) { return n > 9 ? res_nosearch() : 0; }", "lazy", anyGlibc, "no library has res_nosearch"},
		"new":    {nvml, "lazy", glibc{2, 0}, "it needs glibc 2."},
	} {
		t.Run(name, func(t *testing.T) {
			program := compile(t, cc, test.source, "-Wl,-z,"+test.binding)
			_, err := platform(program, test.newest)
			if refused := err != nil; refused != (test.want != "") || refused && !strings.Contains(err.Error(), test.want) {
				t.Error(err)
			}
			if runs := test.binding == "lazy"; starts(t, program) != runs {
				t.Errorf("the program starts: %t", !runs)
			}
		})
	}
}

// starts reports whether a program ends with status 0.
func starts(t *testing.T, program []byte) bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return exec.Command(path).Run() == nil
}

// toolFolder is where scripts keep what they have prepared.
func toolFolder(t *testing.T) string {
	t.Helper()
	if folder := os.Getenv("GPURUN_TOOLS"); folder != "" {
		return folder
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return filepath.Join(cache, "gpurun-tools")
}

// TestOldSystems builds a small program with the compilers for old systems, as far as this
// machine has prepared them.
func TestOldSystems(t *testing.T) {
	for arch, want := range map[string]string{"amd64": "manylinux_2_28_x86_64", "arm64": "manylinux_2_28_aarch64"} {
		t.Run(arch, func(t *testing.T) {
			cc := filepath.Join(toolFolder(t), "sysroot", "bin", "gpurun-gcc-"+arch)
			if exec.Command(cc, "--version").Run() != nil {
				t.Skipf("SKIPPED: scripts/sysroot.sh has not prepared a compiler for %s on this machine", arch)
			}
			tag, err := platform(compile(t, cc, nvml, "-Wl,-z,lazy"), promised)
			if err != nil || tag != want {
				t.Errorf("%s, %v", tag, err)
			}
		})
	}
}
