package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// generatedFiles returns the files that gpurun generate writes.
func generatedFiles(t *testing.T) (dir string, files map[string]string) {
	t.Helper()
	dir, files = t.TempDir(), make(map[string]string)
	if err := generate(newRoot(), dir); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, files
}

// TestGenerate: every command has a page with its flags under the headings of the help, and
// every shell its completions.
func TestGenerate(t *testing.T) {
	_, files := generatedFiles(t)
	run := files["man/man1/gpurun-run.1"]
	newRun().Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && !strings.Contains(run, roff("--"+flag.Name)) {
			t.Errorf("gpurun-run.1 has no --%s", flag.Name)
		}
	})
	for name, texts := range map[string][]string{
		"man/man1/gpurun.1": {
			".TH GPURUN 1 ", "gpurun \\- Run a kernel", ".BR gpurun\\-run (1)", ".BR gpurun\\-exit\\-codes (7)",
			".nf\ngpurun try embed.py in.jsonl ",
		},
		"man/man1/gpurun-run.1":        {".SS Kernel\n", ".B \\-k, \\-\\-kernel", "(default 16)", "\\-k \\(aqexec:./score"},
		"man/man1/gpurun-plugin-new.1": {".BR gpurun\\-plugin (1)"},
		"man/man7/gpurun-exit-codes.7": {"7    stopped, resumable"},
		"man/man7/gpurun-job-file.7":   {"kernel\\-config:\n  model: small\n"},

		"bash-completion/completions/gpurun":    {"__start_gpurun"},
		"zsh/site-functions/_gpurun":            {"#compdef gpurun"},
		"fish/vendor_completions.d/gpurun.fish": {"complete -c gpurun"},
	} {
		for _, text := range texts {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s does not contain %q", name, text)
			}
		}
	}
	for name := range files {
		if strings.Contains(name, "generate") || strings.Contains(name, "gpurun-help") {
			t.Errorf("%s describes a command that the help does not list", name)
		}
	}
	_, again := generatedFiles(t)
	for name, text := range files {
		if again[name] != text {
			t.Errorf("%s differs between two runs", name)
		}
	}
}

// TestManPagesRender: groff has nothing to complain about.
func TestManPagesRender(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("SKIPPED: groff is not installed: the man pages are not rendered")
	}
	dir, _ := generatedFiles(t)
	pages, err := filepath.Glob(filepath.Join(dir, "man/man*/*"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		var complaints bytes.Buffer
		cmd := exec.Command(groff, "-man", "-Tutf8", "-P-cbou", "-Kutf8", "-ww", page)
		cmd.Stderr = &complaints
		text, err := cmd.Output()
		if err != nil || complaints.Len() > 0 || !strings.Contains(string(text), "SEE ALSO") {
			t.Errorf("%s: %v\n%s", filepath.Base(page), err, complaints.String())
		}
	}
}

// TestGenerateRefuses: a folder that cannot be written is reported.
func TestGenerateRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := generate(newRoot(), file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
