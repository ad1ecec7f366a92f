// Package metrics exposes jobs, GPUs and allocations to Prometheus. It is the only package
// that uses client_golang.
//
// Nothing here counts: every figure is read from a view.View, which is derived from events,
// or from the last samples of the GPUs, at the time of a scrape.
package metrics

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/jobs"
)

// Source is where the figures come from. Its functions are called for every scrape and
// must return at once. Runs may be nil.
type Source struct {
	Jobs func() []jobs.State
	GPUs func() []GPU
	Runs func() []cluster.Overview
}

// Metrics is a set of metrics.
type Metrics struct {
	registry *prometheus.Registry
	// Allocations counts requests for GPU memory.
	Allocations *Allocations
}

// New returns the metrics of a source and of this process.
func New(source Source) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), Allocations: newAllocations()}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{source}, m.Allocations.requests, m.Allocations.duration,
	)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 5 * time.Second})
}

// WriteFile replaces a file with the metrics, for node_exporter's textfile collector, which
// never sees part of it.
func (m *Metrics) WriteFile(path string) error { return prometheus.WriteToTextfile(path, m.registry) }

// collector reads the source when Prometheus asks. It is unchecked: which figures there
// are is known only then.
type collector struct{ source Source }

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	for _, job := range c.source.Jobs() {
		s.job(job)
	}
	if c.source.Runs != nil {
		for _, run := range c.source.Runs() {
			s.run(run)
		}
	}
	for _, gpu := range c.source.GPUs() {
		s.gpu(gpu)
	}
}

// sink sends metrics.
type sink struct{ out chan<- prometheus.Metric }

// labels are the labels of a metric, names and values in turn.
type labels []string

// and returns the labels with more.
func (l labels) and(more ...string) labels { return slices.Concat(l, more) }

func (l labels) split() (names, values []string) {
	for pair := range slices.Chunk(l, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	return names, values
}

func (s sink) send(kind prometheus.ValueType, name, help string, value float64, l labels) {
	names, values := l.split()
	metric, err := prometheus.NewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	if err == nil { // otherwise a label is not UTF-8
		s.out <- metric
	}
}

func (s sink) gauge(name, help string, value float64, l labels) {
	s.send(prometheus.GaugeValue, name, help, value, l)
}

func (s sink) counter(name, help string, value float64, l labels) {
	s.send(prometheus.CounterValue, name, help, value, l)
}

func (s sink) histogram(name, help string, h histogram, l labels) {
	names, values := l.split()
	metric, err := prometheus.NewConstHistogram(prometheus.NewDesc(name, help, names, nil),
		uint64(h.Count()), h.Sum.Seconds(), h.Octaves(), values...)
	if err == nil {
		s.out <- metric
	}
}
