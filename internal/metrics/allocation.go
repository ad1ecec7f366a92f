package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxServices is how many services have series of their own; requests name services, and
// series are never removed.
const maxServices = 100

// Allocations counts requests for GPU memory by their outcome.
type Allocations struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	mu       sync.Mutex
	services map[string]bool
}

func newAllocations() *Allocations {
	return &Allocations{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpu_allocation_requests_total", Help: "Requests for GPU memory by outcome.",
		}, []string{"status", "service"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gpu_allocation_duration_seconds", Help: "How long requests for GPU memory took, including waiting.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		services: make(map[string]bool),
	}
}

// Count counts a request of this process.
func (a *Allocations) Count(service string, took time.Duration, ok bool) {
	a.CountOther(service, ok)
	a.duration.Observe(took.Seconds())
}

// CountOther counts a request of another process, whose duration is unknown.
func (a *Allocations) CountOther(service string, ok bool) {
	if strings.HasPrefix(service, "run-") {
		service = "run" // jobs without a name have their id in it
	}
	a.mu.Lock()
	if !a.services[service] && len(a.services) >= maxServices {
		service = "other"
	}
	a.services[service] = true
	a.mu.Unlock()
	status := "success"
	if !ok {
		status = "failed"
	}
	a.requests.WithLabelValues(status, service).Inc()
}
