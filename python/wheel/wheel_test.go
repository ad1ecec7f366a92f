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
	path, err := build(testProgram(t), "v1.2.3", "..", "../../SECURITY.md", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(filepath.Base(path), "gpurun-1.2.3-py3-none-manylinux_2_") {
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
		if want := file.Name == "gpurun-1.2.3.data/scripts/gpurun"; executable != want {
			t.Errorf("%s: mode %s", file.Name, file.Mode())
		}
	}
	rows, err := csv.NewReader(bytes.NewReader(files["gpurun-1.2.3.dist-info/RECORD"])).ReadAll()
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
	for _, name := range []string{"gpurun/__init__.py", "gpurun/__init__.pyi", "gpurun/py.typed", "gpurun_runner/__init__.py", "gpurun_runner/kernel.py", "gpurun-1.2.3.dist-info/licenses/LICENSE", "gpurun-1.2.3.dist-info/licenses/SECURITY.md"} {
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
		path, err := build(testProgram(t), "v1.2.3", "..", "../../SECURITY.md", t.TempDir())
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
		if _, err := build(path, "v1", "..", "", t.TempDir()); err == nil || !strings.Contains(err.Error(), path) {
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

// TestPrograms builds small programs in C that ask for NVML as gpurun does, and for it too
// early.
func TestPrograms(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no C compiler: no programs with other needs")
	}
	source := filepath.Join(t.TempDir(), "program.c")
	if err := os.WriteFile(source, []byte("int nvmlInit_v2(void); int main(int n, char **a) { return n > 9 ? nvmlInit_v2() : 0; }"), 0o666); err != nil {
		t.Fatal(err)
	}
	for binding, want := range map[string]string{"lazy": "", "now": "link it with -Wl,-z,lazy"} {
		program := filepath.Join(t.TempDir(), "program")
		if out, err := exec.Command(cc, "-o", program, source, "-Wl,--unresolved-symbols=ignore-in-object-files", "-Wl,--export-dynamic", "-Wl,-z,"+binding).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		_, err = platform(data)
		if refused := err != nil; refused != (want != "") || refused && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", binding, err)
		}
		if err := exec.Command(program).Run(); (err == nil) != (want == "") {
			t.Errorf("%s: the program itself: %v", binding, err)
		}
	}
}
