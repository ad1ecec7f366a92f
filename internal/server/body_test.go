package server

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
)

// A body of the wrong form is refused in the terms of JSON, not of Go.
func TestWrongBodiesAreExplained(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	t.Setenv(lease.Variable, t.TempDir())
	host := NewHost(lease.DefaultConfig())
	handler := New(Access{Token: token}, host, metrics.New(host.Metrics()))
	const wrong = "the body is not the expected JSON: "
	for body, want := range map[string]string{
		`POST /api/gpu/memory/allocate {"required_mb":"4 GB"}`:      wrong + "required_mb must be a whole number, not a string",
		`POST /api/gpu/memory/allocate {"required_mb":1.5}`:         wrong + "required_mb must be a whole number, not 1.5",
		`POST /api/gpu/memory/allocate {"allocation_id":7}`:         wrong + "allocation_id must be a string, not a number",
		`POST /api/gpu/memory/allocate {"ttl_seconds":"1h"}`:        wrong + "ttl_seconds must be a number, not a string",
		`POST /api/gpu/memory/allocate {"gpu_id":1.5}`:              wrong + `gpu_id must be the index of a GPU (0), a MIG instance ("2:0") or a UUID`,
		`POST /api/gpu/memory/allocate {"gpu_id":-1}`:               wrong + `gpu_id must be the index of a GPU (0), a MIG instance ("2:0") or a UUID`,
		`POST /api/gpu/memory/allocate {"gpu_ids":1}`:               wrong + `unknown field "gpu_ids"; did you mean gpu_id?`,
		`POST /api/gpu/memory/allocate {"x":1}`:                     wrong + `unknown field "x"; the members are allocation_id, required_mb, gpu_id, ttl_seconds`,
		`POST /api/gpu/memory/allocate []`:                          wrong + "it must be an object, not an array",
		`POST /api/gpu/memory/deallocate {"allocation_id":["a"]}`:   wrong + "allocation_id must be a string, not an array",
		`PUT /api/gpu/config [1]`:                                   wrong + "it must be an object, not an array",
		`PUT /api/gpu/config {"temp_normal":null}`:                  "temp_normal: null is not a number from 0 to 150",
		`PUT /api/gpu/config {"temp_normal":{"celsius":[70,true]}}`: `temp_normal: {"celsius":[70,true]} is not a number from 0 to 150`,
		`PUT /api/gpu/config {"temp_normal":1e300}`:                 "temp_normal: 1e+300 is not a number from 0 to 150",
	} {
		method, rest, _ := strings.Cut(body, " ")
		path, body, _ := strings.Cut(rest, " ")
		request := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		var got problem
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != 400 || got.Error != want {
			t.Errorf("%s %s %s: %d %q, want %q", method, path, body, answer.Code, got.Error, want)
		}
	}
}
