package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsHaveCodes: every fault that the program makes has a code, with which its message
// ends and which gpurun explain explains; and every code is in use.
func TestErrorsHaveCodes(t *testing.T) {
	root, used := moduleRoot(t), make(map[string]bool)
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		paths, err := filepath.Glob(filepath.Join(root, name, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files in %s: %v", name, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || name == "internal/fault" {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range uncoded(file, used) {
				t.Errorf("%s makes a fault without a code: fault.CODE.New makes one (internal/fault/code.go), fault.New only wraps a fault with %%w",
					strings.TrimPrefix(files.Position(n.Pos()).String(), root+"/"))
			}
		}
	}
	declarations, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/fault/code.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(declarations, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if call, ok := spec.Values[0].(*ast.CallExpr); ok && len(call.Args) == 2 {
			codes++
			if name := spec.Names[0].Name; !used[name] {
				t.Errorf("no error has the code fault.%s: remove it and its entry in internal/explain/messages", name)
			}
		}
		return true
	})
	if codes < 100 {
		t.Errorf("only %d codes", codes)
	}
}

// wraps finds the verb of a format that wraps an error.
var wraps = regexp.MustCompile(`%(\[\d+\])?w`)

// uncoded returns the places in a file that make a fault without a code, and notes which names
// of package fault the file uses.
func uncoded(file *ast.File, used map[string]bool) (found []ast.Node) {
	isFault := func(e ast.Expr, name string) bool {
		selector, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, ok := selector.X.(*ast.Ident)
		return ok && from.Name == "fault" && selector.Sel.Name == name
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok && from.Name == "fault" {
				used[n.Sel.Name] = true
			}
		case *ast.CallExpr:
			if isFault(n.Fun, "New") {
				format, ok := n.Args[1].(*ast.BasicLit)
				if !ok || !wraps.MatchString(format.Value) {
					found = append(found, n)
				}
			}
		case *ast.CompositeLit:
			coded := false
			for _, element := range n.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if ok {
					key, ok := pair.Key.(*ast.Ident)
					coded = coded || ok && key.Name == "Code"
				}
			}
			if isFault(n.Type, "Error") && len(n.Elts) > 0 && !coded {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// TestUncodedErrorsAreFound checks the check itself.
func TestUncodedErrorsAreFound(t *testing.T) {
	source := `package p
var a, b = fault.New(fault.Usage, "no"), fault.New(fault.Usage, "run: %w", e)
var c, d = fault.Error{Kind: k}, fault.Error{Kind: k, Code: fault.Bug}`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	if found := uncoded(file, used); len(found) != 2 || !used["Bug"] {
		t.Errorf("%d found, used %v", len(found), used)
	}
}
