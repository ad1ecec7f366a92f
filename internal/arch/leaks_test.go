package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// sealed are the packages that programs and kernels outside this module import.
var sealed = []string{"orchestrator", "plugins", "gpu", "chunk", "worker"}

// TestNoInternalTypeIsExported: a program that embeds gpurun can name every type that it
// meets. An alias counts as a name of its own: type Fault = fault.Error.
func TestNoInternalTypeIsExported(t *testing.T) {
	load := loader(t)
	for _, name := range sealed {
		p, err := load.Import(module + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, leak := range leaks(p) {
			t.Error(leak)
		}
	}
}

// loader returns an importer that reads what the compiler exports.
func loader(t *testing.T) types.Importer {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, name := range sealed {
		args = append(args, module+"/"+name)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := make(map[string]string)
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
}

// leaks lists the internal types in the exported signatures of a package.
func leaks(p *types.Package) []string {
	w := &leakWalker{named: make(map[*types.TypeName]bool)}
	scope := p.Scope()
	for _, name := range scope.Names() { // aliases first: they make a type public
		if object, ok := scope.Lookup(name).(*types.TypeName); ok && object.Exported() && object.IsAlias() {
			if target, ok := types.Unalias(object.Type()).(*types.Named); ok {
				w.named[target.Obj()] = true
			}
		}
	}
	for _, name := range scope.Names() {
		if object := scope.Lookup(name); object.Exported() {
			w.where = p.Name() + "." + name
			w.object(object)
		}
	}
	slices.Sort(w.found)
	return slices.Compact(w.found)
}

type leakWalker struct {
	named map[*types.TypeName]bool // internal types that have a public name
	where string
	found []string
}

func (w *leakWalker) object(object types.Object) {
	named, isNamed := types.Unalias(object.Type()).(*types.Named)
	if _, isType := object.(*types.TypeName); !isType || !isNamed {
		w.walk(object.Type())
		return
	}
	w.at("", named.Underlying())
	for method := range named.Methods() {
		if method.Exported() {
			w.at("."+method.Name(), method.Type())
		}
	}
}

// at walks a type that is a member of the current one.
func (w *leakWalker) at(member string, t types.Type) {
	where := w.where
	w.where += member
	w.walk(t)
	w.where = where
}

// walk reports internal types that t names. Other named types are walked where they are
// declared.
func (w *leakWalker) walk(t types.Type) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		object := t.Obj()
		if object.Pkg() != nil && strings.Contains(object.Pkg().Path(), "/internal/") && strings.HasPrefix(object.Pkg().Path(), module) && !w.named[object] {
			w.found = append(w.found, fmt.Sprintf("%s exports %s.%s, which no other module can name: give it a public name, or use another type",
				w.where, object.Pkg().Name(), object.Name()))
		}
		for argument := range t.TypeArgs().Types() {
			w.walk(argument)
		}
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() {
				w.at("."+field.Name(), field.Type())
			}
		}
	case *types.Interface:
		for method := range t.Methods() {
			if method.Exported() {
				w.at("."+method.Name(), method.Type())
			}
		}
	case *types.Signature:
		w.tuple(t.Params())
		w.tuple(t.Results())
	case *types.Map:
		w.walk(t.Key())
		w.walk(t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		w.walk(t.Elem())
	}
}

func (w *leakWalker) tuple(list *types.Tuple) {
	for v := range list.Variables() {
		w.walk(v.Type())
	}
}

// TestLeaksAreFound checks the check itself.
func TestLeaksAreFound(t *testing.T) {
	hidden := types.NewPackage(module+"/internal/hidden", "hidden")
	kind := types.NewNamed(types.NewTypeName(token.NoPos, hidden, "Kind", nil), types.Typ[types.Int], nil)
	for name, test := range map[string]struct {
		export types.Type
		alias  bool
		want   int
	}{
		"a string":        {export: types.Typ[types.String]},
		"a kind":          {export: kind, want: 1},
		"in a field":      {export: types.NewStruct([]*types.Var{types.NewField(token.NoPos, hidden, "Kind", types.NewPointer(kind), false)}, nil), want: 1},
		"not exported":    {export: types.NewStruct([]*types.Var{types.NewField(token.NoPos, hidden, "kind", kind, false)}, nil)},
		"with an alias":   {export: types.NewSlice(kind), alias: true},
		"returned in map": {export: types.NewSignatureType(nil, nil, nil, nil, types.NewTuple(types.NewParam(token.NoPos, nil, "", types.NewMap(types.Typ[types.String], kind))), false), want: 1},
	} {
		p := types.NewPackage(module+"/public", "public")
		p.Scope().Insert(types.NewVar(token.NoPos, p, "Exported", test.export))
		if test.alias {
			name := types.NewTypeName(token.NoPos, p, "Alias", nil)
			types.NewAlias(name, kind)
			p.Scope().Insert(name)
		}
		if got := leaks(p); len(got) != test.want {
			t.Errorf("%s: %q, want %d", name, got, test.want)
		}
	}
}
