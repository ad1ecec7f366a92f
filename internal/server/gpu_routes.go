package server

import (
	"net/http"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

// Empty is no data.
type Empty struct{}

var (
	historyLimit = parameter{name: "limit", about: "at most this many, 100 unless given", least: 0, most: 100_000}
	trendMinutes = parameter{name: "duration", about: "minutes, 5 unless given", least: 1, most: 7 * 24 * 60}
)

// routes are the routes of the GPUs.
func (a *gpuAPI) routes() []route {
	id := parameter{name: "gpu_id", about: "index (0), MIG instance (2:0) or UUID of the GPU; the first unless given"}
	return []route{
		{pattern: "GET /api/gpu/status", summary: "Get the status of a GPU", query: []parameter{id}, answer: success[GPUStatus]{}, handler: ofOne(a, a.status)},
		{pattern: "GET /api/gpu/status/all", summary: "Get the status of all GPUs", answer: success[AllGPUs]{}, handler: ofAll(a.all)},
		{pattern: "GET /api/gpu/metrics", summary: "Get the last reading of a GPU", query: []parameter{id}, answer: success[Reading]{},
			handler: ofOne(a, func(r Reading) Reading { return r })},
		{pattern: "GET /api/gpu/metrics/history", summary: "Get past readings, oldest first", answer: success[Readings]{}, handler: a.getHistory,
			query: []parameter{{name: "gpu_id", about: "index (0), MIG instance (2:0) or UUID of a GPU; all unless given"}, historyLimit}},
		{pattern: "GET /api/gpu/temperature/trend", summary: "Get how a GPU's temperature has changed", answer: success[*Trend]{}, handler: a.getTrend,
			query: []parameter{id, trendMinutes}},
		{pattern: "GET /api/gpu/throttle/status", summary: "Get how far GPUs are slowed down", answer: success[ThrottleStatus]{}, handler: ofAll(a.throttle)},
		{pattern: "GET /api/gpu/memory/available", summary: "Get the memory of a GPU that can be allocated", query: []parameter{id}, answer: success[Available]{}, handler: ofOne(a, a.available)},
		{pattern: "POST /api/gpu/memory/allocate", summary: "Lease memory of a GPU for a time", body: AllocateRequest{}, answer: success[Allocated]{}, handler: a.leases.postAllocate},
		{pattern: "POST /api/gpu/memory/deallocate", summary: "End a lease that was allocated here", body: DeallocateRequest{}, answer: success[Allocated]{}, handler: a.leases.postDeallocate},
		{pattern: "POST /api/gpu/monitoring/start", summary: "Record the GPUs' history", answer: success[Empty]{}, handler: a.monitoring(true, "GPU monitoring started")},
		{pattern: "POST /api/gpu/monitoring/stop", summary: "Stop recording the GPUs' history; jobs still protect hot GPUs", answer: success[Empty]{}, handler: a.monitoring(false, "GPU monitoring stopped")},
		{pattern: "GET /api/gpu/config", summary: "Get the monitor's settings", answer: success[map[string]any]{}, handler: ofAll(a.settings)},
		{pattern: "PUT /api/gpu/config", summary: "Change the monitor's settings, all that are given or none", body: SettingsRequest{}, answer: success[map[string]any]{}, handler: a.putConfig},
	}
}

// ofOne responds with what is shown of the GPU that a request means.
func ofOne[T any](a *gpuAPI, show func(Reading) T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if reading, ok := a.which(w, r); ok {
			succeed(w, "", show(reading))
		}
	}
}

// ofAll responds with the same to all requests.
func ofAll[T any](get func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { succeed(w, "", get()) }
}

func (a *gpuAPI) getHistory(w http.ResponseWriter, r *http.Request) {
	limit, err := historyLimit.number(r, 100)
	if err != nil {
		failWith(w, err)
		return
	}
	match := func(Reading) bool { return true }
	if r.URL.Query().Get("gpu_id") != "" {
		one, ok := a.which(w, r)
		if !ok {
			return
		}
		match = one.same
	}
	all := a.book.history(match)
	all = all[max(0, len(all)-int(limit)):]
	succeed(w, "", Readings{len(all), all})
}

func (a *gpuAPI) getTrend(w http.ResponseWriter, r *http.Request) {
	minutes, err := trendMinutes.number(r, 5)
	if err != nil {
		failWith(w, err)
		return
	}
	if one, ok := a.which(w, r); ok {
		succeed(w, "", trendOf(a.book.history(one.same), minutes, time.Now()))
	}
}

// monitoring turns the history on or off.
func (a *gpuAPI) monitoring(on bool, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if drain(w, r) {
			a.book.record(on)
			succeed(w, message, Empty{})
		}
	}
}

func (a *gpuAPI) putConfig(w http.ResponseWriter, r *http.Request) {
	var changes map[string]any
	if !decode(w, r, &changes) {
		return
	}
	if len(changes) == 0 {
		fail(w, http.StatusBadRequest, "no settings given")
		return
	}
	if err := a.configure(changes); err != nil {
		failWith(w, err)
		return
	}
	succeed(w, "configuration updated", a.settings())
}

// SettingsRequest describes changes of settings, by their names.
type SettingsRequest struct{}

// limits implements body.
func (SettingsRequest) limits() map[string]object {
	all := make(map[string]object)
	for name, r := range gpu.Ranges() {
		kind := "number"
		if r.Integer {
			kind = "integer"
		}
		all[name] = object{"type": []any{kind, "string"}, "minimum": r.Low, "maximum": r.High} // a string like 3s
	}
	return all
}
