package main

import (
	"bytes"
	"encoding"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// allEvents is one of each type of event. referEvents fails if one is missing.
var allEvents = []orchestrator.Event{
	orchestrator.Planned{}, orchestrator.Resuming{}, orchestrator.WorkerStarted{}, orchestrator.WorkerPhase{}, orchestrator.WorkerReady{}, orchestrator.WorkerLost{},
	orchestrator.WorkerLeft{}, orchestrator.DeviceRetired{}, orchestrator.WorkersScaled{}, orchestrator.ChunkStarted{}, orchestrator.Progress{}, orchestrator.ChunkDone{},
	orchestrator.ChunkGivenUp{}, orchestrator.DeviceSample{}, orchestrator.DeviceEvent{Kind: gpu.StateChange}, orchestrator.Notice{},
	orchestrator.Paused{}, orchestrator.Resumed{}, orchestrator.Stopping{}, orchestrator.Finished{},
}

func referEvents(t *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Events\n\n" +
		"`gpurun run --json-events` writes one JSON object per line; `GET /api/jobs/{id}/events` sends the\n" +
		fmt.Sprintf("same ([API](../api.md#events)). Each has `event`, its name, `time`, in RFC 3339, and `v`, the version of\n"+
			"this schema: %d ([compatibility](../compatibility.md)). Times that end in `_ns` are nanoseconds. A member in\n"+
			"*italics* may be absent.\n\n", view.EventsVersion) +
		"If the program ends with an error, the last event is `error`, with `kind` and `message`\n" +
		"([exit statuses](exit-codes.md)).\n")
	s := &shapes{t: t, docs: make(map[string]*doc.Package)}
	known := make(map[string]bool)
	for _, event := range allEvents {
		of := reflect.TypeOf(event)
		known[of.Name()] = true
		name := "`" + event.EventName() + "`"
		if _, isDevice := event.(orchestrator.DeviceEvent); isDevice {
			name = "Events of a device"
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n%s", name, s.about(of), s.members(of))
	}
	for _, name := range eventTypes(t) {
		if !known[name] {
			t.Errorf("orchestrator.%s is missing in allEvents", name)
		}
	}
	b.WriteString("\n# Shapes\n")
	for i := 0; i < len(s.found); i++ { // members add further ones
		fmt.Fprintf(b, "\n## %s\n\n%s\n%s", shapeName(s.found[i]), s.about(s.found[i]), s.members(s.found[i]))
	}
}

// eventTypes are the types of package orchestrator with a method EventName.
func eventTypes(t *testing.T) (names []string) {
	t.Helper()
	paths, _ := filepath.Glob("../../orchestrator/*.go")
	more, _ := filepath.Glob("../../orchestrator/event/*.go")
	paths = append(paths, more...)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if method, ok := decl.(*ast.FuncDecl); ok && method.Name.Name == "EventName" && method.Recv != nil {
				names = append(names, strings.TrimSuffix(receiver(method), "."))
			}
		}
	}
	return names
}

// shapes collects the structs that JSON contains, with the comments of their source.
type shapes struct {
	t     *testing.T
	found []reflect.Type
	docs  map[string]*doc.Package
}

// source returns the documentation of a type.
func (s *shapes) source(of reflect.Type) *doc.Type {
	path := strings.TrimPrefix(of.PkgPath(), modulePath+"/")
	if s.docs[path] == nil {
		files := token.NewFileSet()
		var parsed []*ast.File
		paths, _ := filepath.Glob(filepath.Join("../..", path, "*.go"))
		for _, name := range paths {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			if err != nil {
				s.t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		pkg, err := doc.NewFromFiles(files, parsed, of.PkgPath(), doc.AllDecls)
		if err != nil {
			s.t.Fatal(err)
		}
		s.docs[path] = pkg
	}
	for _, one := range s.docs[path].Types {
		if one.Name == of.Name() {
			return one
		}
	}
	s.t.Errorf("no source of %v", of)
	return &doc.Type{}
}

// about is the comment of a type, without its Go name.
func (s *shapes) about(of reflect.Type) string {
	text := strings.Join(strings.Fields(s.source(of).Doc), " ")
	text = regexp.MustCompile(`^`+of.Name()+`(:| (is|are) ) ?`).ReplaceAllString(text, "")
	return sentence(text)
}

func sentence(text string) string {
	text = strings.NewReplacer("[", "", "]", "", "<", "&lt;").Replace(text)
	if text == "" || strings.HasPrefix(text, "gpurun ") || strings.HasPrefix(text, "`") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// members is the table of the members of a struct.
func (s *shapes) members(of reflect.Type) string {
	comments := make(map[string]string)
	s.comments(of, comments)
	var b strings.Builder
	names := strings.NewReplacer(jsonNames(of)...)
	for _, f := range reflect.VisibleFields(of) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" || nested(of, f) {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		tag = "`" + tag + "`"
		if strings.Contains(options, "omit") {
			tag = "*" + tag + "*"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", tag, s.shape(f.Type), cell(sentence(inJSON(comments[f.Name], names))))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n| member | value | |\n|---|---|---|\n" + b.String()
}

// jsonNames are the Go names of the fields of a struct, each followed by its name in JSON.
func jsonNames(of reflect.Type) (pairs []string) {
	for _, f := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" {
			pairs = append(pairs, "\x00"+f.Name+"\x00", "`"+tag+"`")
		}
	}
	return pairs
}

var goName = regexp.MustCompile(`\b[A-Z]\w*\b`)

// inJSON writes the names of fields in a comment as JSON has them.
func inJSON(comment string, names *strings.Replacer) string {
	marked := goName.ReplaceAllString(comment, "\x00$0\x00")
	return strings.ReplaceAll(names.Replace(marked), "\x00", "")
}

// nested reports whether a field belongs to an embedded struct that JSON nests under a name.
func nested(of reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		outer := of.FieldByIndex(f.Index[:i])
		if tag, _, _ := strings.Cut(outer.Tag.Get("json"), ","); tag != "" {
			return true
		}
	}
	return false
}

// comments collects the comments of the fields of a struct and of those it embeds.
func (s *shapes) comments(of reflect.Type, all map[string]string) {
	for _, f := range reflect.VisibleFields(of) {
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			s.comments(f.Type, all)
		}
	}
	decl := s.source(of).Decl
	if decl == nil {
		return
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if ok {
			text := field.Doc.Text()
			if text == "" {
				text = field.Comment.Text()
			}
			for _, name := range field.Names {
				all[name.Name] = strings.Join(strings.Fields(regexp.MustCompile(`^`+name.Name+` (is|are) `).ReplaceAllString(text, "")), " ")
			}
		}
		return true
	})
}

// shape names the JSON of a type.
func (s *shapes) shape(of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return s.shape(of.Elem())
	case of == reflect.TypeFor[time.Time]():
		return "time"
	case of == reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case of.Kind() == reflect.Struct && strings.HasPrefix(of.Name(), "Optional["):
		method, _ := of.MethodByName("Get")
		return s.shape(method.Type.Out(0))
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "text"
	}
	switch of.Kind() {
	case reflect.Struct:
		if of.Name() == "" || !strings.HasPrefix(of.PkgPath(), modulePath) {
			return "object"
		}
		if !slices.Contains(s.found, of) {
			s.found = append(s.found, of)
		}
		return fmt.Sprintf("[%s](#%s)", shapeName(of), strings.ReplaceAll(strings.ToLower(shapeName(of)), " ", "-"))
	case reflect.Slice, reflect.Array:
		if of.Elem().Kind() == reflect.Uint8 {
			return "JSON"
		}
		return "list of " + s.shape(of.Elem())
	case reflect.Map:
		return "object of " + s.shape(of.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Interface:
		return "any"
	}
	return "number"
}

// shapeName makes "Tally" of chunk.Tally; names are unique.
func shapeName(of reflect.Type) string {
	if of.PkgPath() == modulePath+"/internal/fault" {
		return "Fault"
	}
	return of.Name()
}

// TestShapesAreUnique: two types with one name would share a heading.
func TestShapesAreUnique(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		if seen[strings.ToLower(match[1])] {
			t.Errorf("two headings %s", match[1])
		}
		seen[strings.ToLower(match[1])] = true
	}
}

// receiver is "Type." for a method, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
