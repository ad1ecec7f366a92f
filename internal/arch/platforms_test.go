package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// platforms are those that gpurun must compile for, besides this one.
var platforms = []struct{ system, processor string }{
	{"linux", "amd64"}, // without cgo
	{"linux", "arm64"},
	{"darwin", "arm64"},
}

// TestPlatforms type-checks every package for other platforms, without cgo. That finds what
// does not compile there in a tenth of the time of a build: make cross builds.
func TestPlatforms(t *testing.T) {
	parse := parsedOnce()
	for _, p := range platforms {
		t.Run(p.system+"/"+p.processor, func(t *testing.T) {
			list := func(args ...string) string {
				t.Helper()
				cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"}, args...)...)
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.processor)
				out, err := cmd.Output()
				if err != nil {
					var exit *exec.ExitError
					if errors.As(err, &exit) {
						t.Fatalf("go list: %s", exit.Stderr)
					}
					t.Fatal(err)
				}
				return string(out)
			}
			packages := list(module + "/...")
			if p == platforms[0] { // tests that make test compiles only where there is a browser
				packages += list("-test", "-tags=browser", module+"/web")
			}
			complaints, checked := typeCheck(strings.NewReader(packages), types.SizesFor("gc", p.processor), parse)
			for _, complaint := range complaints {
				t.Error(complaint)
			}
			if checked < 60 {
				t.Errorf("checked only %d packages", checked)
			}
		})
	}
}

// TestPlatformsFindsMistakes: the check above reports a wrong type, and a name that another
// platform does not have.
func TestPlatformsFindsMistakes(t *testing.T) {
	dir := t.TempDir()
	source := "package p\n\nfunc f() int { return \"text\" }\n\nvar _ = missing()\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	list := fmt.Sprintf(`{"ImportPath":"p","Dir":%q,"GoFiles":["p.go"],"Module":{"Main":true}}`, dir)
	complaints, checked := typeCheck(strings.NewReader(list), types.SizesFor("gc", "amd64"), parsedOnce())
	all := fmt.Sprint(complaints)
	if len(complaints) != 2 || checked != 1 || !strings.Contains(all, "undefined: missing") || !strings.Contains(all, "p.go:3") {
		t.Errorf("%d packages: %v", checked, complaints)
	}
}

// typeCheck reads what go list -deps prints, dependencies first, and checks the packages of
// this module; of the others it reads declarations only.
func typeCheck(list io.Reader, sizes types.Sizes, parse parseFile) (complaints []error, checked int) {
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	for decoder := json.NewDecoder(list); ; {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Main bool }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return complaints, checked
		} else if err != nil {
			return append(complaints, err), checked
		}
		if known[p.ImportPath] != nil || strings.HasSuffix(p.ImportPath, ".test") { // also the main package of a test
			continue
		}
		ours := p.Module != nil && p.Module.Main
		if ours {
			checked++
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parse(filepath.Join(p.Dir, name), ours)
			if err != nil {
				return append(complaints, err), checked
			}
			parsed = append(parsed, file)
		}
		config := types.Config{
			IgnoreFuncBodies: !ours, Sizes: sizes, FakeImportC: true,
			Importer: importFrom(func(path string) (*types.Package, error) {
				if other := p.ImportMap[path]; other != "" {
					path = other
				}
				if found := known[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not listed", path)
			}),
			Error: func(err error) {
				if ours {
					complaints = append(complaints, err)
				}
			},
		}
		known[p.ImportPath], _ = config.Check(p.ImportPath, positions, parsed, nil)
	}
}

// positions has the lines of all parsed files.
var positions = token.NewFileSet()

// parseFile parses a file, for its declarations alone or with the bodies of its functions.
type parseFile func(path string, bodies bool) (*ast.File, error)

// parsedOnce returns a parseFile that remembers files: platforms share most of them.
func parsedOnce() parseFile {
	known := make(map[string]*ast.File)
	return func(path string, bodies bool) (*ast.File, error) {
		if file := known[path]; file != nil {
			return file, nil
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if !bodies {
			strip(file)
		}
		known[path] = file
		return file, nil
	}
}

// strip removes the bodies of functions, and the elements of tables whose type does not depend on them.
func strip(file *ast.File) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			d.Body = nil
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == 1 {
					literal, _ := v.Values[0].(*ast.CompositeLit)
					if literal == nil {
						continue
					}
					if array, ok := literal.Type.(*ast.ArrayType); ok {
						if _, counted := array.Len.(*ast.Ellipsis); counted {
							continue
						}
					}
					literal.Elts = nil
				}
			}
		}
	}
}

// importFrom is a types.Importer.
type importFrom func(path string) (*types.Package, error)

// Import implements types.Importer.
func (i importFrom) Import(path string) (*types.Package, error) { return i(path) }
