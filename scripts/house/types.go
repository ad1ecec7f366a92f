package main

import (
	"go/ast"
	"go/types"
	"strings"
)

// typeSize is how much code belongs to a type.
type typeSize struct {
	name string
	// methods are its own, those it gets by embedding types of this module, and functions of
	// its package whose first parameter is a pointer to it.
	methods, files, fields int
}

func measureTypes(packages []*pkg) (all []typeSize) {
	ours := map[*types.Package]bool{}
	for _, p := range packages {
		ours[p.types] = true
	}
	for _, p := range packages {
		taking := functionsTaking(p)
		for _, name := range p.types.Scope().Names() {
			object, is := p.types.Scope().Lookup(name).(*types.TypeName)
			if !is || object.IsAlias() {
				continue
			}
			named, is := object.Type().(*types.Named)
			if _, isInterface := named.Underlying().(*types.Interface); !is || isInterface {
				continue
			}
			t := typeSize{name: strings.TrimPrefix(p.name+"."+name, ".")}
			files := map[string]bool{}
			count := func(object types.Object) {
				t.methods++
				files[p.fset.Position(object.Pos()).Filename] = true
			}
			set := types.NewMethodSet(types.NewPointer(named))
			for i := range set.Len() {
				if m := set.At(i).Obj(); ours[m.Pkg()] {
					count(m)
				}
			}
			for _, f := range taking[named.Obj()] {
				count(f)
			}
			if s, is := named.Underlying().(*types.Struct); is {
				t.fields = s.NumFields()
			}
			t.files = len(files)
			all = append(all, t)
		}
	}
	return all
}

// functionsTaking returns the functions of a package by the type to which their first
// parameter points.
func functionsTaking(p *pkg) map[*types.TypeName][]types.Object {
	by := map[*types.TypeName][]types.Object{}
	for _, file := range p.files {
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Recv != nil {
				continue
			}
			object, is := p.info.Defs[f.Name].(*types.Func)
			if !is || object.Signature().Params().Len() == 0 {
				continue
			}
			pointer, is := object.Signature().Params().At(0).Type().(*types.Pointer)
			if !is {
				continue
			}
			if named, is := pointer.Elem().(*types.Named); is && named.Obj().Pkg() == p.types {
				by[named.Obj()] = append(by[named.Obj()], object)
			}
		}
	}
	return by
}
