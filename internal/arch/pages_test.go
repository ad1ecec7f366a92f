package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedFile is the name of a source file in a page, such as `orchestrator/run.go`.
var quotedFile = regexp.MustCompile("`([a-z][\\w./-]*/[\\w-]+\\.(?:go|py))`")

// TestPagesNameFiles: the source files that pages for developers name exist.
func TestPagesNameFiles(t *testing.T) {
	root := moduleRoot(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "internals", "*.md"))
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join(root, "ARCHITECTURE.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range quotedFile.FindAllStringSubmatch(string(text), -1) {
			name := match[1]
			if strings.HasPrefix(name, "runner/") { // of Python kernels
				name = "plugins/python/" + name
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), match[1])
			}
		}
	}
}
