package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fold is the only package that keeps state from events; others render its View.
const fold = "internal/view"

// readers are the functions of other packages that look into an event, to print, pass on or replay
// that one event, or to take a reading of the View when one arrives.
var readers = map[string][]string{
	"cmd/gpurun":        {"showHints"},
	"internal/progress": {"Event", "alarm", "notice"},
	"internal/server":   {"Event"}, // of Feed, which replays them, and of Job
	"examples/embed":    {"files"},
}

// TestOneFold: only internal/view keeps state from events.
func TestOneFold(t *testing.T) {
	root, found := moduleRoot(t), make(map[string]bool)
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == fold || name == "orchestrator" || strings.HasPrefix(name, "orchestrator/") {
			continue // those emit them
		}
		for _, path := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name, path), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, function := range eventReaders(file) {
				found[name+"."+function] = true
				if !slices.Contains(readers[name], function) {
					t.Errorf("%s in %s reads events: keep state in %s and render its View, or list the function if it prints one event", function, filepath.Join(name, path), fold)
				}
			}
		}
	}
	for name, functions := range readers {
		for _, function := range functions {
			if !found[name+"."+function] {
				t.Errorf("%s in %s reads no events: remove it from the list", function, name)
			}
		}
	}
}

// eventReaders returns the functions of a file that ask for the type of an event.
func eventReaders(file *ast.File) (names []string) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(function, func(n ast.Node) bool {
			var asked []ast.Expr
			switch n := n.(type) {
			case *ast.CaseClause:
				asked = n.List
			case *ast.TypeAssertExpr:
				asked = []ast.Expr{n.Type}
			}
			if slices.ContainsFunc(asked, isEvent) && !slices.Contains(names, function.Name.Name) {
				names = append(names, function.Name.Name)
			}
			return true
		})
	}
	return names
}

// eventTypes are the types of events, by their names in package orchestrator.
var eventTypes = []string{
	"Planned", "Resuming", "WorkerStarted", "WorkerPhase", "WorkerReady", "WorkerLost", "WorkerLeft", "WorkersScaled", "ChunkStarted", "Progress", "ChunkDone",
	"ChunkGivenUp", "DeviceSample", "DeviceEvent", "DeviceRetired", "Notice", "Paused", "Resumed", "Stopping", "Finished",
}

func isEvent(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && (from.Name == "orchestrator" || from.Name == "event") && slices.Contains(eventTypes, selector.Sel.Name)
}

// TestEventReadersAreFound checks the check itself.
func TestEventReadersAreFound(t *testing.T) {
	const source = `package p
func fold(e orchestrator.Event) { switch e := e.(type) { case orchestrator.ChunkDone: count += e.Counts.Records } }
func peek(e event.Event) bool { _, ok := e.(event.Progress); return ok }
func other(v any) { switch v { case orchestrator.Done: }; _ = v.(orchestrator.Report) }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := eventReaders(file); !slices.Equal(got, []string{"fold", "peek"}) {
		t.Errorf("%v", got)
	}
}
