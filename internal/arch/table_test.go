package arch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of packages into docs/internals/packages.md")

const tableHeader = "| package | responsibility | may import |\n|---|---|---|\n"

// TestTableOfPackages: the table in docs/internals/packages.md is what the rules say.
func TestTableOfPackages(t *testing.T) {
	path := filepath.Join(moduleRoot(t), "docs", "internals", "packages.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), tableHeader)
	if !found {
		t.Fatal("docs/internals/packages.md has no table of packages")
	}
	got, after, _ := strings.Cut(rest, "\n\n")
	want := table()
	if got == want {
		return
	}
	if !*update {
		t.Fatal("the table of packages in docs/internals/packages.md differs from the rules: run go test ./internal/arch -update")
	}
	if err := os.WriteFile(path, []byte(before+tableHeader+want+"\n\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table renders the layers and their rules.
func table() string {
	var lines []string
	for _, layer := range layers {
		lines = append(lines, fmt.Sprintf("| **%s** | **%s** | |", layer.name, layer.about))
		for _, r := range layer.rules {
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", r.name, r.about, imports(r.allowed)))
		}
	}
	return strings.Join(lines, "\n")
}

// imports lists packages, those below internal together.
func imports(allowed []string) string {
	if slices.Contains(allowed, "...") {
		return "everything"
	}
	var names, internal []string
	for _, name := range allowed {
		if short, isInternal := strings.CutPrefix(name, "internal/"); isInternal {
			internal = append(internal, short)
		} else {
			names = append(names, name)
		}
	}
	switch len(internal) {
	case 0:
	case 1:
		names = append(names, "internal/"+internal[0])
	default:
		names = append(names, "internal/{"+strings.Join(internal, ",")+"}")
	}
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(names, ", ")
}
