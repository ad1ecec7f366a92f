package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/httpserve"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/metrics"
	"github.com/gpurun/gpurun/internal/view"
)

// BenchmarkScrape is a scrape of a job on eight GPUs: it must answer within 50 ms.
func BenchmarkScrape(b *testing.B) {
	control := &controlled{}
	job := NewJob(jobs.Entry{Info: jobs.Info{ID: "3fa9c201"}}, control, view.NewCollector(time.Now))
	handler := New(Access{Token: token}, job, metrics.New(job.Metrics()))
	for _, e := range eightGPUs() {
		job.follow(e)
	}
	r := httptest.NewRequest("GET", "http://localhost/metrics", nil)
	for b.Loop() {
		job.current.drop()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

// Over TLS, everything works as without.
func TestTLS(t *testing.T) {
	s := serveJob(t, Access{Token: token})
	borrowed := httptest.NewUnstartedServer(nil) // it has a certificate
	borrowed.StartTLS()
	defer borrowed.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: borrowed.TLS.Certificates, MinVersion: tls.VersionTLS12}
	end := httpserve.Serve(tls.NewListener(l, config), 8, New(Access{Token: token, ReadToken: true}, s.job, metrics.New(s.job.Metrics())))
	defer end()
	client := borrowed.Client()
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/": 200, "/api/jobs": 401} {
		response, err := client.Get("https://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	if response, err := http.Get("http://" + l.Addr().String() + "/"); err == nil {
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("answered without TLS")
		}
	}
}
