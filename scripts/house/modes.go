package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// mode is a property of a job that one package decides. A condition elsewhere that reads it
// is a mode check.
type mode struct {
	name string
	// owners are packages that may ask.
	owners []string
	// fields and functions answer it, by name, in any package of this module. A field may be
	// written with the name of its struct.
	fields, functions []string
	// literals are beginnings and endings of names that tell it.
	literals []string
	// parts are optional: comparing one with nil asks for the mode.
	parts []string
	// seams are interfaces: asserting the type of one asks for the mode.
	seams []string
}

// modes are the properties that stages have asked about again and again.
var modes = []mode{
	{name: "output kind", owners: []string{"orchestrator/spec", "chunk/commit", "chunk/encode"},
		fields: []string{"Table", "PartOptions.Rows", "Codec", "ErrorsApart", "Results.PartBytes", "Results.Columns", "Results.KeepFailed"}, functions: []string{"format", "Encodes", "cutsUnits", "CutsUnits", "keepsFailed", "keepsParts", "columnSpec"}},
	{name: "batch file", owners: []string{"orchestrator/spec"}, fields: []string{"Config.Format", "Plan.Format", "Report.Format", "outputPrint.Lines", "Survey.Format", "PartOptions.Batch", "Records.Batch", "Options.Batch", "Job.Batch", "Results.Batch"}},
	{name: "streamed output", owners: []string{"orchestrator/spec"}, fields: []string{"Streamed"}, functions: []string{"isStream", "resumable", "Streamed", "Kept", "Unresumable"}},
	{name: "streaming", owners: []string{"orchestrator/spec"}, fields: []string{"streaming"}},
	{name: "framed", owners: []string{"chunk/commit"}, fields: []string{"framed", "Framed", "FrameFailures", "Reprocess"}},
	{name: "concurrency", owners: []string{"worker", "plugins", "plugins/process"}, fields: []string{"Concurrency"}},
	{name: "grouping", owners: []string{"worker", "plugins", "plugins/process"}, fields: []string{"GroupBy"}},
	{name: "kernel kind", owners: []string{"plugins/resolve"}, functions: []string{"CutPython", "isPython"}, literals: []string{"exec:", "openai:", "serve:"}},
	{name: "optional part", owners: []string{"chunk/input"}, parts: []string{"inputs"}},
	{name: "optional part", owners: []string{"chunk/commit"}, fields: []string{"earlier.resumes"}, parts: []string{"units", "layout", "journal", "arrays", "earlier"}},
	{name: "type of a seam", seams: []string{"input.Source", "input.Planner", "plugins.Kernel", "encode.Codec", "commit.Store"}},
}

func modeNames() (names []string) {
	for _, m := range modes {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// check is a condition that asks for a mode.
type check struct {
	mode, place string
	in          *pkg
}

// finder looks for mode checks. derived are functions that do nothing but answer one.
type finder struct {
	packages []*pkg
	ours     map[*types.Package]bool
	derived  map[types.Object]*mode
}

func findChecks(packages []*pkg) (all []check) {
	f := &finder{packages: packages, ours: map[*types.Package]bool{}, derived: map[types.Object]*mode{}}
	for _, p := range packages {
		f.ours[p.types] = true
	}
	for f.derive() {
	}
	for _, p := range packages {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				for _, condition := range conditions(n) {
					all = append(all, f.checks(p, condition)...)
				}
				return true
			})
		}
	}
	return all
}

// conditions returns the expressions on which a statement decides.
func conditions(n ast.Node) (all []ast.Node) {
	add := func(e ast.Expr) {
		if e != nil {
			all = append(all, e)
		}
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		add(n.Cond)
		if n.Init != nil {
			all = append(all, n.Init)
		}
	case *ast.ForStmt:
		add(n.Cond)
	case *ast.SwitchStmt:
		add(n.Tag)
	case *ast.CaseClause:
		for _, e := range n.List {
			add(e)
		}
	case *ast.TypeSwitchStmt:
		all = append(all, n.Assign)
	}
	return all
}

// derive finds more functions whose body is one return of an answer that depends on a mode.
func (f *finder) derive() (found bool) {
	for _, p := range f.packages {
		for _, file := range p.files {
			for _, d := range file.Decls {
				function, is := d.(*ast.FuncDecl)
				if !is || function.Body == nil || len(function.Body.List) != 1 {
					continue
				}
				object := p.info.Defs[function.Name]
				answer, is := function.Body.List[0].(*ast.ReturnStmt)
				if !is || len(answer.Results) != 1 || object == nil || f.derived[object] != nil || !isBool(p.info.TypeOf(answer.Results[0])) {
					continue
				}
				if asked := f.asked(p, answer.Results[0]); len(asked) > 0 {
					f.derived[object], found = asked[0], true
				}
			}
		}
	}
	return found
}

func isBool(t types.Type) bool {
	basic, is := types.Unalias(t).(*types.Basic)
	return is && basic.Info()&types.IsBoolean != 0
}

// checks returns the modes that a condition asks for, outside of the packages that own them.
func (f *finder) checks(p *pkg, condition ast.Node) (all []check) {
	for _, m := range f.asked(p, condition) {
		if slices.Contains(m.owners, p.name) {
			continue
		}
		at := p.fset.Position(condition.Pos())
		all = append(all, check{m.name, fmt.Sprintf("%s/%s:%d", p.name, filepath.Base(at.Filename), at.Line), p})
	}
	return all
}

// asked returns the modes that an expression or a statement reads, each once.
func (f *finder) asked(p *pkg, n ast.Node) (all []*mode) {
	add := func(m *mode) {
		if m != nil && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SelectorExpr:
			add(f.field(p.info.Selections[n]))
		case *ast.Ident:
			add(f.named(p.info.Uses[n]))
		case *ast.BasicLit:
			add(f.literal(n))
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				add(f.part(p, n.X, n.Y))
			}
		case *ast.TypeAssertExpr:
			add(f.seam(p.info.TypeOf(n.X)))
		}
		return true
	})
	return all
}

// named returns the mode that a field or a function answers.
func (f *finder) named(object types.Object) *mode {
	if object == nil || !f.ours[object.Pkg()] && !f.isOurs(object) {
		return nil
	}
	if m := f.derived[object]; m != nil {
		return m
	}
	for i := range modes {
		m := &modes[i]
		switch object := object.(type) {
		case *types.Var:
			if object.IsField() && slices.Contains(m.fields, object.Name()) {
				return m
			}
		case *types.Func:
			if slices.Contains(m.functions, object.Name()) {
				return m
			}
		}
	}
	return nil
}

// field returns the mode of a field that is listed with its struct.
func (f *finder) field(s *types.Selection) *mode {
	if s == nil || s.Kind() != types.FieldVal {
		return nil
	}
	receiver := s.Recv()
	if pointer, is := receiver.(*types.Pointer); is {
		receiver = pointer.Elem()
	}
	named, is := receiver.(*types.Named)
	if !is {
		return nil
	}
	for i := range modes {
		if slices.Contains(modes[i].fields, named.Obj().Name()+"."+s.Obj().Name()) {
			return &modes[i]
		}
	}
	return nil
}

// isOurs: an object from export data belongs to another copy of a package of this module.
func (f *finder) isOurs(object types.Object) bool {
	return object.Pkg() != nil && slices.ContainsFunc(f.packages, func(p *pkg) bool { return p.types.Path() == object.Pkg().Path() })
}

// literal returns the mode that the beginning or ending of a name tells.
func (f *finder) literal(n *ast.BasicLit) *mode {
	for i := range modes {
		if slices.Contains(modes[i].literals, strings.Trim(n.Value, `"`)) {
			return &modes[i]
		}
	}
	return nil
}

// part returns the mode whose optional part is compared with nil.
func (f *finder) part(p *pkg, x, y ast.Expr) *mode {
	if !p.info.Types[y].IsNil() {
		return nil
	}
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	for i := range modes {
		if slices.ContainsFunc(modes[i].parts, func(part string) bool { return strings.EqualFold(part, name) }) {
			return &modes[i]
		}
	}
	return nil
}

// seam returns the mode of an interface whose dynamic type is asked for.
func (f *finder) seam(t types.Type) *mode {
	named, is := t.(*types.Named)
	if !is || named.Obj().Pkg() == nil {
		return nil
	}
	name := named.Obj().Pkg().Name() + "." + named.Obj().Name()
	for i := range modes {
		if slices.Contains(modes[i].seams, name) {
			return &modes[i]
		}
	}
	return nil
}
