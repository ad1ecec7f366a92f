package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is a package of this module. Tests, generated files and the benchmarks do not count.
type pkg struct {
	name          string // path below the module's
	fset          *token.FileSet
	files         []*ast.File
	types         *types.Package
	info          *types.Info
	tokens, lines int
	count         int // of files, with those of other platforms
}

// leftOut are folders that are not part of the product.
var leftOut = []string{"bench", "scripts"}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	IgnoredGoFiles          []string // for other platforms
	Module                  *struct {
		Path string
		Main bool
	}
}

// load reads and type-checks the packages of this module. The go command compiles what they
// import, so that types come from export data.
func load() ([]*pkg, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(exports[path])
	})
	var packages []*pkg
	for _, l := range all {
		if l.Module == nil || !l.Module.Main {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, l.Module.Path), "/")
		if isLeftOut(name) {
			continue
		}
		p, err := checkTypes(fset, imports, name, l)
		if err != nil {
			return nil, err
		}
		if len(p.files) > 0 {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

func isLeftOut(name string) bool {
	for _, folder := range leftOut {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

func list() (all []listed, err error) {
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,IgnoredGoFiles,Module", "./...")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// checkTypes parses and type-checks one package. Generated files take part in the check only.
func checkTypes(fset *token.FileSet, imports types.Importer, name string, l listed) (*pkg, error) {
	p := &pkg{name: name, fset: fset, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var all []*ast.File
	for i, file := range append(l.GoFiles, l.IgnoredGoFiles...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(l.Dir, file))
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(fset, filepath.Join(l.Dir, file), content, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ours := i < len(l.GoFiles)
		if ours {
			all = append(all, parsed)
		}
		if ast.IsGenerated(parsed) {
			continue
		}
		if p.count++; ours {
			p.files = append(p.files, parsed)
		}
		p.tokens += tokens(content)
		p.lines += strings.Count(string(content), "\n")
	}
	config := types.Config{Importer: imports, Error: func(error) {}}
	p.types, _ = config.Check(l.ImportPath, fset, all, p.info) // a file with cgo has errors, and its types all the same
	return p, nil
}

// tokens counts the tokens of a file without comments and separators: commas, and the
// semicolons that the scanner inserts at the end of a line.
func tokens(content []byte) (n int) {
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile("", -1, len(content)), content, nil, 0)
	for {
		switch _, tok, text := s.Scan(); {
		case tok == token.EOF:
			return n
		case tok != token.COMMA && (tok != token.SEMICOLON || text != "\n"):
			n++
		}
	}
}
