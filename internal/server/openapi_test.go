package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// document is an OpenAPI document.
type document struct {
	Paths      map[string]map[string]object
	Components struct{ Schemas map[string]object }
}

// validate reports how a value differs from a schema, "" if it does not.
func (d document) validate(schema object, value any, at string) string {
	if ref, ok := schema["$ref"].(string); ok {
		return d.validate(d.Components.Schemas[ref[strings.LastIndex(ref, "/")+1:]], value, at)
	}
	if options, ok := schema["anyOf"].([]any); ok {
		var all []string
		for _, o := range options {
			why := d.validate(o.(object), value, at)
			if why == "" {
				return ""
			}
			all = append(all, why)
		}
		return strings.Join(all, " and ")
	}
	kind, _ := schema["type"].(string)
	switch v := value.(type) {
	case nil:
		if kind != "null" && kind != "" {
			return at + " is null"
		}
	case string:
		if kind != "string" && kind != "" {
			return fmt.Sprintf("%s is the string %q", at, v)
		}
	case bool:
		if kind != "boolean" && kind != "" {
			return at + " is a boolean"
		}
	case float64:
		if kind != "number" && (kind != "integer" || v != float64(int64(v))) && kind != "" {
			return fmt.Sprintf("%s is %v, not %s", at, v, kind)
		}
	case []any:
		if kind != "array" && kind != "" {
			return at + " is an array"
		}
		items, _ := schema["items"].(object)
		for i, item := range v {
			if why := d.validate(items, item, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	case object:
		return d.validateObject(schema, v, at)
	}
	return ""
}

func (d document) validateObject(schema, value object, at string) string {
	properties, _ := schema["properties"].(object)
	others, open := schema["additionalProperties"].(object)
	if schema["type"] != "object" {
		if schema["type"] == nil {
			return ""
		}
		return at + " is an object"
	}
	for name, member := range value {
		property, known := properties[name].(object)
		if !known {
			property = others
		}
		if !known && !open {
			return at + "." + name + " is not described"
		}
		if why := d.validate(property, member, at+"."+name); why != "" {
			return why
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, there := value[name.(string)]; !there {
			return fmt.Sprintf("%s.%v is missing", at, name)
		}
	}
	return ""
}

// checkOpenAPI asks a server everything that its document describes, and compares the
// answers with the document.
func checkOpenAPI(t *testing.T, handler http.Handler, id string, bodies map[string]string) {
	t.Helper()
	ask := func(method, path, body string) (int, any, http.Header) {
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var value any
		if err := json.Unmarshal(w.Body.Bytes(), &value); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, w.Body)
		}
		return w.Code, value, w.Header()
	}
	var d document
	_, raw, _ := ask("GET", "/openapi.json", "")
	data, _ := json.Marshal(raw)
	if err := json.Unmarshal(data, &d); err != nil || len(d.Paths) < 22 {
		t.Fatalf("%d paths, %v", len(d.Paths), err)
	}
	for path, operations := range d.Paths {
		for method, operation := range operations {
			success := operation["responses"].(object)["200"].(object)
			if success["content"].(object)["application/json"] == nil {
				continue // text, or an endless stream
			}
			method = strings.ToUpper(method)
			status, value, _ := ask(method, strings.ReplaceAll(path, "{id}", id), bodies[path])
			responses := operation["responses"].(object)
			response, _ := responses[fmt.Sprint(status)].(object)
			if response == nil {
				response = responses["default"].(object)
			}
			schema := response["content"].(object)["application/json"].(object)["schema"].(object)
			if why := d.validate(schema, value, method+" "+path); why != "" {
				t.Errorf("%d: %s", status, why)
			}
			if status != http.StatusOK && bodies[path] != "-" {
				t.Logf("%s %s: %d %v", method, path, status, value)
			}
		}
	}
}

func TestOpenAPIOfJob(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	s.job.follow(planned())
	s.job.follow(orchestrator.DeviceSample{Device: "GPU 0", State: gpu.Optimal, Pace: 1, Sample: gpu.Sample{Temperature: gpu.Some(50),
		Memory: gpu.Some(gpu.Memory{Total: 1 << 30, Used: 1 << 29, Free: 1 << 29}), Throttle: gpu.Some(gpu.Reasons(1))}})
	s.job.follow(orchestrator.Finished{Report: orchestrator.Report{In: 3, Workers: []orchestrator.WorkerReport{{}}}})
	handler := New(Access{Token: token}, s.job, metrics.New(s.job.Metrics()))
	checkOpenAPI(t, handler, "3fa9c201", map[string]string{
		"/api/gpu/config":            `{"temp_throttle": 80}`,
		"/api/gpu/memory/allocate":   `{"allocation_id": "a", "required_mb": 1}`,
		"/api/gpu/memory/deallocate": `{"allocation_id": "a"}`,
	})
}

// unmonitored is a job that has no GPU.
type unmonitored struct{ *controlled }

func (unmonitored) MonitorSettings() map[string]any { return nil }

func (unmonitored) ConfigureMonitor(map[string]any) error {
	return fault.NoAnswer.New("the job monitors no GPU")
}

// TestOpenAPIOfUnmonitoredJob: responses have the described types although there is nothing to show.
func TestOpenAPIOfUnmonitoredJob(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	job := NewJob(s.job.entry, unmonitored{s.control}, view.NewCollector(time.Now))
	checkOpenAPI(t, New(Access{Token: token}, job, metrics.New(job.Metrics())), s.job.entry.ID, map[string]string{"/api/gpu/config": `{"temp_throttle": 80}`})
}

func TestOpenAPIOfHost(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	h := NewHost(lease.DefaultConfig())
	m := metrics.New(h.Metrics())
	h.CountAllocations(m.Allocations)
	h.look(t.Context())
	checkOpenAPI(t, New(Access{Token: token}, h, m), "3fa9c201", map[string]string{
		"/api/gpu/config":            `{"temp_throttle": 80}`,
		"/api/gpu/memory/allocate":   `{"allocation_id": "a", "required_mb": 1}`,
		"/api/gpu/memory/deallocate": `{"allocation_id": "a"}`,
	})
}

// TestOpenAPIDocumentIsValid: generators of clients can read the document. make api-test does
// more, with tools of others.
func TestOpenAPIDocumentIsValid(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	for name, backend := range map[string]Backend{"host": NewHost(lease.DefaultConfig()), "job": serveJob(t, Access{Token: token}).job} {
		w := httptest.NewRecorder()
		New(Access{Token: token}, backend, metrics.New(metrics.Source{})).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
		var d document
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		for schema := range d.Components.Schemas {
			if !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(schema) {
				t.Errorf("%s: %q is not a valid name of a schema", name, schema)
			}
		}
		for _, match := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			if d.Components.Schemas[match[1]] == nil {
				t.Errorf("%s: there is no schema %q", name, match[1])
			}
		}
		ids := make(map[string]string)
		for path, operations := range d.Paths {
			for method, operation := range operations {
				id, _ := operation["operationId"].(string)
				if other, taken := ids[id]; taken || !regexp.MustCompile(`^[a-z]+([A-Z][a-z]*)+$`).MatchString(id) {
					t.Errorf("%s: %s %s: operationId %q (also of %q)", name, method, path, id, other)
				}
				ids[id] = method + " " + path
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json"} {
			if d.Paths[path] == nil {
				t.Errorf("%s: %s is not described", name, path)
			}
		}
	}
}
