package server

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// openAPI describes routes as an OpenAPI 3.1 document. Shapes come from the Go types that
// are encoded, so that they cannot drift.
func openAPI(routes []route) object {
	paths := object{}
	schemas := schemas{all: object{}}
	for _, r := range routes {
		method, path, _ := strings.Cut(r.pattern, " ")
		operations, _ := paths[path].(object)
		if operations == nil {
			operations = object{}
			paths[path] = operations
		}
		operations[strings.ToLower(method)] = operation(r, method, path, &schemas)
	}
	schemas.of(reflect.TypeFor[problem]())
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "gpurun", "version": "1", "description": "Jobs and GPUs of one host. See gpurun manual api."},
		"paths":   paths,
		"components": object{
			"schemas":         schemas.all,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

func operation(r route, method, path string, schemas *schemas) object {
	parameters := []any{}
	for _, match := range pathParameter.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": match[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, p := range r.query {
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.about, "schema": p.schema()})
	}
	success := object{"description": "OK"}
	switch media := r.answer.(type) {
	case nil:
	case string:
		success["content"] = object{media: object{"schema": object{"type": "string"}}}
	default:
		success["content"] = object{"application/json": object{"schema": schemas.of(reflect.TypeOf(r.answer))}}
	}
	failure := object{"description": "an error", "content": object{"application/json": object{"schema": schemas.of(reflect.TypeFor[problem]())}}}
	o := object{"operationId": operationID(method, path), "summary": r.summary, "parameters": parameters, "responses": object{"200": success, "default": failure}}
	o["security"] = []any{object{"token": []any{}}}
	if method == "GET" { // reading needs it only where Access says so
		o["security"] = []any{object{}, object{"token": []any{}}}
	}
	if r.body != nil {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": schemas.ofBody(r.body)}}}
	}
	return o
}

// operationID names an operation as generated clients do: getJobs, getJob, postJobPause.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	for _, word := range strings.FieldsFunc(strings.TrimPrefix(path, "/api"), func(r rune) bool { return r == '/' || r == '.' }) {
		if strings.HasPrefix(word, "{") { // one of those before
			id = strings.TrimSuffix(id, "s")
			continue
		}
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// schemas are the named types of a document.
type schemas struct{ all object }

// of returns the schema of a type: for a named struct a reference.
func (s *schemas) of(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Pointer:
		return object{"anyOf": []any{s.of(t.Elem()), object{"type": "null"}}}
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t == reflect.TypeFor[gpuID]():
		return object{"anyOf": []any{object{"type": "integer"}, object{"type": "string"}}}
	case t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "Optional["):
		method, _ := t.MethodByName("Get")
		return s.of(method.Type.Out(0))
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.named(t)
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Interface:
		return object{}
	}
	return object{"type": "integer"}
}

// body is a request whose values must lie within limits that their types do not show.
type body interface {
	// limits are keywords of the schemas of members, by name.
	limits() map[string]object
}

// ofBody returns the schema of a request, which has no other members (decode).
func (s *schemas) ofBody(value any) object {
	reference := s.of(reflect.TypeOf(value))
	described, ok := value.(body)
	if !ok {
		return reference
	}
	schema := s.all[schemaName(reflect.TypeOf(value))].(object)
	schema["additionalProperties"] = false
	for name, limits := range described.limits() {
		properties := schema["properties"].(object)
		member, _ := properties[name].(object)
		if options, isOptional := member["anyOf"].([]any); isOptional {
			member = options[0].(object)
		}
		if member == nil {
			member = object{}
			properties[name] = member
		}
		maps.Copy(member, limits)
	}
	return reference
}

// named adds the schema of a struct and returns a reference to it.
func (s *schemas) named(t reflect.Type) object {
	name := schemaName(t)
	if t.Name() == "" {
		return s.members(t)
	}
	if _, known := s.all[name]; !known {
		s.all[name] = object{} // for types that contain themselves
		s.all[name] = s.members(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

var (
	importPath = regexp.MustCompile(`[\w.-]+/`)
	notInNames = regexp.MustCompile(`\W+`)
)

// schemaName is the name of a type with its package, and with its arguments if it is generic.
func schemaName(t reflect.Type) string {
	return strings.Trim(notInNames.ReplaceAllString(importPath.ReplaceAllString(fmt.Sprint(t), ""), "_"), "_")
}

func (s *schemas) members(t reflect.Type) object {
	properties, required := object{}, []any{}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" || promotedFromNamed(t, f) {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		properties[tag] = s.of(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// promotedFromNamed reports whether a field belongs to an embedded struct that JSON nests
// under a name.
func promotedFromNamed(t reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		outer := t.FieldByIndex(f.Index[:i])
		if tag, _, _ := strings.Cut(outer.Tag.Get("json"), ","); tag != "" {
			return true
		}
	}
	return false
}
