package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/published"
)

// TestAPIKeepsItsMembers: paths, parameters and members of the API keep their names and
// types, a member that is always there stays so, and no request needs more than before.
//
//	GPURUN_UPDATE=1 go test -run TestAPIKeepsItsMembers ./internal/server
func TestAPIKeepsItsMembers(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	host := NewHost(lease.DefaultConfig())
	job := serveJob(t, Access{Token: token})
	for name, handler := range map[string]http.Handler{
		"host": New(Access{Token: token}, host, metrics.New(host.Metrics())),
		"job":  New(Access{Token: token}, job.job, metrics.New(job.job.Metrics())),
	} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
		var d document
		if err := json.Unmarshal(answer.Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		lines := make(map[string]bool)
		for path, operations := range d.Paths {
			for method, operation := range operations {
				d.operation(lines, strings.ToUpper(method)+" "+path, operation)
			}
		}
		published.Check(t, "testdata/api-"+name+"-1.txt", lines)
	}
}

// operation adds the lines of a request and its answer.
func (d document) operation(lines map[string]bool, at string, operation object) {
	lines[at] = true
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		parameter := p.(object)
		d.shape(lines, at+" ?"+parameter["name"].(string), parameter["schema"].(object), nil)
	}
	if body, has := operation["requestBody"].(object); has {
		schema := body["content"].(object)["application/json"].(object)["schema"].(object)
		d.shape(lines, at+" request", schema, nil)
		d.optional(lines, at+" request", schema)
	}
	success := operation["responses"].(object)["200"].(object)
	content, _ := success["content"].(object)
	for media, description := range content {
		d.shape(lines, at+" "+media, description.(object)["schema"].(object), nil)
	}
}

// shape adds the members of a schema, each with its type, and whether it is always there.
func (d document) shape(lines map[string]bool, at string, schema object, within []string) {
	if ref, ok := schema["$ref"].(string); ok {
		if strings.Contains(strings.Join(within, " ")+" ", ref+" ") { // it contains itself
			return
		}
		d.shape(lines, at, d.resolve(schema), append(within, ref))
		return
	}
	if options, ok := schema["anyOf"].([]any); ok {
		for _, option := range options {
			d.shape(lines, at, option.(object), within)
		}
		return
	}
	kind, _ := schema["type"].(string)
	switch kind {
	case "":
		lines[at+" any"] = true
	case "array":
		d.shape(lines, at+"[]", schema["items"].(object), within)
	case "object":
		properties, _ := schema["properties"].(object)
		for name, property := range properties {
			d.shape(lines, at+"."+name, property.(object), within)
		}
		required, _ := schema["required"].([]any)
		if !strings.HasSuffix(strings.SplitN(at, ".", 2)[0], " request") {
			for _, name := range required {
				lines[at+"."+name.(string)+" always"] = true
			}
		}
		if others, open := schema["additionalProperties"].(object); open {
			d.shape(lines, at+".*", others, within)
		}
	default:
		lines[at+" "+kind] = true
	}
}

// optional adds the members that a request may leave out.
func (d document) optional(lines map[string]bool, at string, schema object) {
	schema = d.resolve(schema)
	properties, _ := schema["properties"].(object)
	required := make(map[any]bool)
	list, _ := schema["required"].([]any)
	for _, name := range list {
		required[name] = true
	}
	for name := range properties {
		if !required[name] {
			lines[at+"."+name+" optional"] = true
		}
	}
}

func (d document) resolve(schema object) object {
	if ref, ok := schema["$ref"].(string); ok {
		return d.Components.Schemas[ref[strings.LastIndex(ref, "/")+1:]]
	}
	return schema
}
