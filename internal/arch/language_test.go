package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// banned are phrases that make users decode a sentence. Say what happens in the active
// voice, with the program or the user as the subject: "gpurun resumes the job", "the kernel
// is rejected".
var banned = regexp.MustCompile(`(?i)\b(is told of|are told of|gone on with|goes on with|go on with|is not let|will not do|nobody|somebody|whoever)\b`)

// reportBanned fails the test if text contains a banned phrase, even across lines.
func reportBanned(t *testing.T, where, text string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, at := range banned.FindAllStringIndex(text, -1) {
		t.Errorf("%s: %q in …%s…", where, text[at[0]:at[1]], text[max(0, at[0]-40):min(len(text), at[1]+40)])
	}
}

// TestDocumentsAreIdiomatic keeps the banned phrases out of the documents for users.
func TestDocumentsAreIdiomatic(t *testing.T) {
	root := moduleRoot(t)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	for _, pattern := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*/*.md", "examples/*/README.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(more) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		documents = append(documents, more...)
	}
	for _, path := range documents {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		reportBanned(t, strings.TrimPrefix(path, root+"/"), string(data))
	}
}

// TestMessagesAreIdiomatic keeps the banned phrases out of every string literal outside
// tests: help texts, flag descriptions, errors, notices and reports.
func TestMessagesAreIdiomatic(t *testing.T) {
	eachLiteral(t, func(t *testing.T, _, where, text string) { reportBanned(t, where, text) })
}

// eachLiteral calls check for every string literal outside tests, with the name of its
// package and its position.
func eachLiteral(t *testing.T, check func(t *testing.T, name, where, text string)) {
	t.Helper()
	root := moduleRoot(t)
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		paths, err := filepath.Glob(filepath.Join(root, name, "*.go")) // for every platform, unlike p.GoFiles
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files in %s: %v", name, err)
		}
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				literals(t, path, func(at token.Position, text string) {
					check(t, name, strings.TrimPrefix(at.String(), root+"/"), text)
				})
			}
		}
	}
}

func literals(t *testing.T, path string, check func(token.Position, string)) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				check(files.Position(literal.Pos()), text)
			}
		}
		return true
	})
}

// TestBannedPhrasesAreFound checks the check itself.
func TestBannedPhrasesAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"Nobody waits":            true,
		"it is told of a mistake": true,
		"nobodyElse":              false,
		"resumes the job":         false,
	} {
		if got := banned.MatchString(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
