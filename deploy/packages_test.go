package deploy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// packages returns the folder with the packages that make packages has built.
func packages(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("GPURUN_PACKAGES")
	if dir == "" {
		t.Skip("SKIPPED: make package-test sets GPURUN_PACKAGES to the folder with the packages")
	}
	return dir
}

// one returns the only file that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s matches %q, %v", pattern, paths, err)
	}
	return paths[0]
}

func run(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GPURUN_LEASE_DIR="+filepath.Join(t.TempDir(), "leases"), "XDG_STATE_HOME="+t.TempDir())
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, complaints.String())
	}
	return string(out)
}

// checkProgram runs a job with an installed program.
func checkProgram(t *testing.T, program string) {
	t.Helper()
	var facts struct {
		Commit  string   `json:"commit"`
		Without []string `json:"built_without"`
	}
	if err := json.Unmarshal([]byte(run(t, ".", program, "version", "--json")), &facts); err != nil || len(facts.Commit) != 40 {
		t.Errorf("%+v, %v", facts, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte("{\"a\":1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, dir, program, "run", "-k", "echo", "in.jsonl", "-o", "out.jsonl", "--gpus", "cpu:1")
	if out, err := os.ReadFile(filepath.Join(dir, "out.jsonl")); string(out) != "{\"a\":1}\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestChecksums: checksums.txt lists every package with its checksum.
func TestChecksums(t *testing.T) {
	dir := packages(t)
	text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	for _, pattern := range []string{"*.tar.gz", "*.deb", "*.whl"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(paths) == 0 {
			t.Errorf("no %s", pattern)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(data); listed[filepath.Base(path)] != hex.EncodeToString(sum[:]) {
				t.Errorf("checksums.txt lists %s with %q", filepath.Base(path), listed[filepath.Base(path)])
			}
		}
	}
}

// TestTarball: the program in the tarball runs, and its manual is next to it.
func TestTarball(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, "tar", "-xzf", one(t, filepath.Join(packages(t), "gpurun_*_linux_"+runtime.GOARCH+".tar.gz")))
	root := one(t, filepath.Join(dir, "*"))
	checkProgram(t, filepath.Join(root, "gpurun"))
	for _, name := range []string{"LICENSE", "README.md", "share/man/man1/gpurun-run.1", "share/bash-completion/completions/gpurun", "share/systemd/gpurun-serve.service"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestDebian unpacks the Debian package and runs its program.
func TestDebian(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("SKIPPED: dpkg-deb is not installed: the Debian package is not unpacked")
	}
	path, dir := one(t, filepath.Join(packages(t), "gpurun_*_"+runtime.GOARCH+".deb")), t.TempDir()
	run(t, dir, "dpkg-deb", "-x", path, dir)
	checkProgram(t, filepath.Join(dir, "usr/bin/gpurun"))
	for _, name := range []string{
		"usr/share/man/man1/gpurun.1.gz", "usr/share/man/man1/gpurun-run.1.gz", "usr/share/man/man7/gpurun-exit-codes.7.gz",
		"usr/share/bash-completion/completions/gpurun", "usr/share/zsh/vendor-completions/_gpurun", "usr/share/fish/vendor_completions.d/gpurun.fish",
		"lib/systemd/system/gpurun-serve.service", "usr/lib/tmpfiles.d/gpurun.conf", "usr/share/doc/gpurun/copyright", "usr/share/doc/gpurun/NEWS.gz", "usr/share/doc/gpurun/changelog.gz",
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o644 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dir, "lib/systemd/system/gpurun-serve.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/usr/bin/gpurun serve") {
		t.Errorf("the unit starts another program: %v", err)
	}
	fields := run(t, dir, "dpkg-deb", "-f", path)
	for _, field := range []string{"Package: gpurun\n", "Architecture: " + runtime.GOARCH, "libc6 (>= 2.28)"} {
		if !strings.Contains(fields, field) {
			t.Errorf("no %q in\n%s", field, fields)
		}
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.Contains(path, "/usr/") && !strings.Contains(path, "/lib/systemd/") {
			t.Errorf("%s is outside of /usr", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLintian: Debian's checker finds no mistake.
func TestLintian(t *testing.T) {
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("SKIPPED: lintian is not installed: the Debian package is not checked")
	}
	run(t, ".", "lintian", "--allow-root", "--fail-on", "error,warning", one(t, filepath.Join(packages(t), "gpurun_*_"+runtime.GOARCH+".deb")))
}

// TestOtherArchitecture runs the program for arm64 on an emulated processor.
func TestOtherArchitecture(t *testing.T) {
	dir := packages(t)
	emulator, err := exec.LookPath("qemu-aarch64")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: no qemu-aarch64 (package qemu-user): the program for arm64 is not run")
	}
	work := t.TempDir()
	run(t, work, "tar", "-xzf", one(t, filepath.Join(dir, "gpurun_*_linux_arm64.tar.gz")))
	program := one(t, filepath.Join(work, "*", "gpurun"))
	out := run(t, work, emulator, "-L", "/usr/aarch64-linux-gnu", program, "version", "--json")
	if !strings.Contains(out, `"arch": "arm64"`) || !strings.Contains(out, `"built_without": []`) {
		t.Error(out)
	}
	emulate(t, program, emulator)
}

// emulate runs a job with a program for arm64.
func emulate(t *testing.T, program, emulator string) {
	t.Helper()
	script, err := filepath.Abs("testdata/emulate.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
		"bash", "-eu", script, program, emulator)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
	cmd.Env = append(os.Environ(), "QEMU_LD_PREFIX=/usr/aarch64-linux-gnu", "GPURUN_LEASE_DIR="+filepath.Join(t.TempDir(), "leases"), "XDG_STATE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.HasSuffix(text, "same\n"):
		t.Log(text)
	case !strings.Contains(text, "registered"):
		t.Logf("SKIPPED: no binfmt_misc in a user namespace (Linux 6.7): the program for arm64 runs no job: %v: %s", err, text)
	default:
		t.Errorf("%v: %s", err, text)
	}
}
