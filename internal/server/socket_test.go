package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// trimming is a job whose kernels wait for block before they release memory.
type trimming struct {
	*controlled
	asked, block chan struct{}
}

func (c trimming) Trim(ctx context.Context) []orchestrator.Trimmed {
	if c.block != nil {
		close(c.asked)
		select {
		case <-c.block:
		case <-ctx.Done():
		}
	}
	return []orchestrator.Trimmed{{Device: "GPU 0"}, {Device: "GPU 1", Fault: fault.New(fault.Timeout, "busy")}}
}

// serveSocket serves a job on its socket until end is called.
func serveSocket(t *testing.T, control trimming) (entry jobs.Entry, end func()) {
	t.Helper()
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	registration, err := jobs.Register(jobs.Entry{Info: jobs.Info{Name: "nightly", Kernel: "echo"}})
	if err != nil {
		t.Fatal(err)
	}
	control.job = NewJob(registration.Entry, control, view.NewCollector(time.Now))
	control.job.follow(planned())
	stop := registration.Serve(NewSocket(control.job), func() view.View { return view.View{} }) // nothing is remembered
	return registration.Entry, func() { control.job.Close(); stop() }
}

// The client of a job's socket controls the job.
func TestSteering(t *testing.T) {
	control := &controlled{}
	entry, end := serveSocket(t, trimming{controlled: control})
	defer end()
	client, ctx := jobs.NewClient(entry), t.Context()
	s, err := client.State(ctx)
	if err != nil || s.Job.ID != entry.ID || s.Total != 100 || s.BatchSize != 10 || s.Phase != view.PhaseRunning {
		t.Errorf("status: %+v %v", s, err)
	}
	if w := s.Workers; len(w) != 2 || w[1].Slot != 1 || w[1].Name != "GPU 1" || w[1].GPUs[0] != "GPU-1" || w[1].Phase != view.PhaseWaiting {
		t.Errorf("workers: %+v", w)
	}
	if s, err := client.Steer(ctx, "pause"); err != nil || s.Phase != view.PhasePaused {
		t.Errorf("pause: %+v %v", s, err)
	}
	if s, err := client.Steer(ctx, "resume"); err != nil || s.Phase != view.PhaseRunning {
		t.Errorf("resume: %+v %v", s, err)
	}
	if _, err := client.Steer(ctx, "cancel"); err != nil || control.canceled != 1 {
		t.Errorf("cancel: %d %v", control.canceled, err)
	}
	answers, err := client.Trim(ctx)
	if err != nil || len(answers) != 2 || answers[0].Fault != nil || answers[1].Fault.Kind != fault.Timeout {
		t.Errorf("trim: %+v %v", answers, err)
	}
}

// A job that monitors no GPU does not refuse the settings of its host.
func TestSettingsSkipUnmonitoredJobs(t *testing.T) {
	t.Setenv(jobs.Variable, filepath.Join(t.TempDir(), "jobs"))
	registration, err := jobs.Register(jobs.Entry{})
	if err != nil {
		t.Fatal(err)
	}
	job := NewJob(registration.Entry, unmonitored{&controlled{}}, view.NewCollector(time.Now))
	defer registration.Serve(NewSocket(job), func() view.View { return view.View{} })()
	if err := configureJob(t.Context(), registration.Entry, []byte(`{"temp_throttle":80}`)); err != nil {
		t.Error(err)
	}
}

// A misbehaving client of the socket, malicious or not, does not affect others.
func TestHostileSocketRequests(t *testing.T) {
	control := &controlled{}
	entry, end := serveSocket(t, trimming{controlled: control})
	defer end()
	huge := strings.Repeat("x", 2*maxBody)
	job := "/api/jobs/" + entry.ID
	for name, test := range map[string]struct{ request, want string }{
		"unknown path":        {"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
		"wrong method":        {"GET " + job + "/cancel HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
		"made-up method":      {"FROB " + job + " HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
		"no HTTP":             {"\x00\x01\x02\r\n\r\n", "400"},
		"way out of the tree": {"GET /api/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "307"},
		"huge body":           {fmt.Sprintf("POST "+job+"/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(huge), huge), "413"},
		"huge chunks":         {fmt.Sprintf("POST "+job+"/cancel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(huge), huge), "413"},
		"huge header":         {"GET " + job + " HTTP/1.1\r\nHost: x\r\nX: " + huge + "\r\n\r\n", "431"},
		"endless length":      {"POST " + job + "/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", entry.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = io.WriteString(conn, test.request) }()
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if !strings.Contains(line, " "+test.want) {
				t.Errorf("got %q, want %s", line, test.want)
			}
		})
	}
	if control.changed() {
		t.Error("one of them got through")
	}
}

// A job that ends disconnects a client that is still waiting.
func TestEndWhileAsked(t *testing.T) {
	control := trimming{&controlled{}, make(chan struct{}), make(chan struct{})}
	defer close(control.block)
	entry, end := serveSocket(t, control)
	answered := make(chan error, 1)
	go func() {
		_, err := jobs.NewClient(entry).Trim(t.Context())
		answered <- err
	}()
	<-control.asked
	end()
	if err := <-answered; err == nil {
		t.Error("answered by a job that has ended")
	}
	if left, _ := os.ReadDir(os.Getenv(jobs.Variable)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
