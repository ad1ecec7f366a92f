package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// jobVariable makes the test binary act as a registered job until it is killed.
const jobVariable = "SERVER_TEST_JOB"

func TestMain(m *testing.M) {
	if name := os.Getenv(jobVariable); name != "" {
		r, err := Register(Entry{Name: name, Output: "/" + name})
		fmt.Println(err)
		if err == nil {
			defer r.Serve(&fakeJob{}, nil)()
		}
		time.Sleep(time.Hour)
	}
	goleak.VerifyTestMain(m)
}

// fakeJob records the calls it receives.
type fakeJob struct {
	mu       sync.Mutex
	paused   bool
	canceled int
	asked    chan struct{} // closed by Trim, which then waits for block
	block    chan struct{}
}

func (f *fakeJob) Snapshot() orchestrator.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := orchestrator.Snapshot{Phase: orchestrator.PhaseRunning, Total: 100}
	if f.paused {
		s.Phase = orchestrator.PhasePaused
	}
	return s
}

func (f *fakeJob) set(paused bool) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, f.paused = f.paused != paused, paused
	return changed
}

func (f *fakeJob) Pause() bool  { return f.set(true) }
func (f *fakeJob) Resume() bool { return f.set(false) }

func (f *fakeJob) Cancel() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.canceled++
}

func (f *fakeJob) Trim(ctx context.Context) []orchestrator.Trimmed {
	if f.block != nil {
		close(f.asked)
		select {
		case <-f.block:
		case <-ctx.Done():
		}
	}
	return []orchestrator.Trimmed{{Device: "GPU 0"}, {Device: "GPU 1", Fault: fault.New(fault.Timeout, "busy")}}
}

// serve registers a job in the test's own folder.
func serve(t *testing.T) (*fakeJob, *Registration) {
	t.Helper()
	t.Setenv(Variable, filepath.Join(t.TempDir(), "jobs"))
	r, err := Register(Entry{Name: "nightly", Output: "/data/out.jsonl", Kernel: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	job := &fakeJob{}
	t.Cleanup(r.Serve(job, nil))
	return job, r
}

func TestSteering(t *testing.T) {
	job, r := serve(t)
	client := NewClient(r.Entry)
	ctx := t.Context()
	if s, err := client.Status(ctx); err != nil || s.Job.ID != r.Entry.ID || s.Status.Total != 100 || s.Status.Phase != orchestrator.PhaseRunning {
		t.Errorf("status: %+v %v", s, err)
	}
	if s, err := client.Pause(ctx); err != nil || s.Status.Phase != orchestrator.PhasePaused {
		t.Errorf("pause: %+v %v", s, err)
	}
	if s, err := client.Resume(ctx); err != nil || s.Status.Phase != orchestrator.PhaseRunning {
		t.Errorf("resume: %+v %v", s, err)
	}
	if _, err := client.Cancel(ctx); err != nil || job.canceled != 1 {
		t.Errorf("cancel: %d %v", job.canceled, err)
	}
	answers, err := client.Trim(ctx)
	if err != nil || len(answers) != 2 || answers[0].Fault != nil || answers[1].Fault.Kind != fault.Timeout {
		t.Errorf("trim: %+v %v", answers, err)
	}
}

// A misbehaving client, malicious or not, does not affect others.
func TestHostileRequests(t *testing.T) {
	job, r := serve(t)
	huge := strings.Repeat("x", 2*maxBody)
	for name, test := range map[string]struct{ request, want string }{
		"unknown path":        {"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
		"wrong method":        {"GET /v1/cancel HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
		"made-up method":      {"FROB /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
		"no HTTP":             {"\x00\x01\x02\r\n\r\n", "400"},
		"way out of the tree": {"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "307"},
		"huge body":           {fmt.Sprintf("POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(huge), huge), "413"},
		"huge chunks":         {fmt.Sprintf("POST /v1/cancel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(huge), huge), "413"},
		"huge header":         {"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + huge + "\r\n\r\n", "431"},
		"endless length":      {"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", r.Entry.Socket)
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
	if job.canceled != 0 {
		t.Errorf("one of them got through: canceled %d times", job.canceled)
	}
}

// Silent clients take all connections; they time out, and other clients are served.
func TestSilentClients(t *testing.T) {
	_, r := serve(t)
	for range MaxConnections + 10 {
		conn, err := net.Dial("unix", r.Entry.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := NewClient(r.Entry).Status(ctx); err != nil {
		t.Error(err)
	}
}

// A job that ends disconnects a client that is still waiting.
func TestEndWhileAsked(t *testing.T) {
	t.Setenv(Variable, filepath.Join(t.TempDir(), "jobs"))
	r, err := Register(Entry{})
	if err != nil {
		t.Fatal(err)
	}
	job := &fakeJob{asked: make(chan struct{}), block: make(chan struct{})}
	defer close(job.block)
	end := r.Serve(job, nil)
	answered := make(chan error, 1)
	go func() {
		_, err := NewClient(r.Entry).Trim(t.Context())
		answered <- err
	}()
	<-job.asked
	end()
	if err := <-answered; err == nil {
		t.Error("answered by a job that has ended")
	}
	if left, _ := os.ReadDir(os.Getenv(Variable)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// startJob starts a job in its own process.
func startJob(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the job said %q", line)
	}
	return cmd
}

// Jobs are found by id, prefix, name and output; dead ones are not found, and leave no
// files.
func TestJobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	t.Setenv(Variable, dir)
	if jobs := List(); len(jobs) != 0 {
		t.Errorf("no folder, but jobs: %+v", jobs)
	}
	first, second := startJob(t, "first"), startJob(t, "second")
	jobs := List()
	if len(jobs) != 2 || jobs[0].PID != first.Process.Pid || jobs[1].Name != "second" {
		t.Fatalf("jobs: %+v", jobs)
	}
	for _, ref := range []string{jobs[0].ID, jobs[0].ID[:7], "first", "/first"} {
		if e, err := Find(ref); err != nil || e.ID != jobs[0].ID {
			t.Errorf("%q: %+v %v", ref, e, err)
		}
	}
	if _, err := Find("third"); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), jobs[1].ID+" (second, /second)") {
		t.Errorf("unknown: %v", err)
	}
	startJob(t, "second")
	if _, err := Find("second"); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "several") {
		t.Errorf("ambiguous: %v", err)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	if jobs := List(); len(jobs) != 2 || jobs[0].PID != second.Process.Pid {
		t.Errorf("after a death: %+v", jobs)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, jobs[0].ID+"*")); len(left) > 0 {
		t.Errorf("the dead left %v", left)
	}
}

// TestJobBeingRegistered: a job that has not locked its file yet is not dead.
func TestJobBeingRegistered(t *testing.T) {
	_, r := serve(t)
	begun := filepath.Join(os.Getenv(Variable), ".new-12345678.json")
	if err := os.WriteFile(begun, []byte(`{"id":"12345678"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if jobs := List(); len(jobs) != 1 || jobs[0].ID != r.Entry.ID {
		t.Errorf("jobs: %+v", jobs)
	}
	if _, err := os.Stat(begun); err != nil {
		t.Errorf("what it writes is gone: %v", err)
	}
}

// Files that no job wrote are ignored.
func TestDamagedEntries(t *testing.T) {
	_, r := serve(t)
	dir := os.Getenv(Variable)
	for name, text := range map[string]string{"a.json": "", "b.json": "{", "c.json": "[]", "d.json": `{"id":"d","socket":"/etc/passwd"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if jobs := List(); len(jobs) != 1 || jobs[0].ID != r.Entry.ID {
		t.Errorf("jobs: %+v", jobs)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("a socket that is none of ours was removed")
	}
}

// Only a private folder is used.
func TestFolders(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, open)
	if _, err := Register(Entry{}); err == nil || !strings.Contains(err.Error(), "is open to other users (mode 777)") {
		t.Errorf("an open folder: %v", err)
	}
	if len(List()) != 0 {
		t.Error("an open folder was believed")
	}
	// A folder whose path is too long for a socket still works.
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	t.Setenv(Variable, long)
	r, err := Register(Entry{})
	if err != nil {
		t.Fatal(err)
	}
	end := r.Serve(&fakeJob{}, nil)
	if _, err := NewClient(r.Entry).Status(t.Context()); err != nil {
		t.Error(err)
	}
	end()
	if _, err := os.Stat(filepath.Dir(r.Entry.Socket)); err == nil {
		t.Error("the socket's folder is left")
	}
}

// The written status can be read back.
func TestStatusJSON(t *testing.T) {
	data, err := json.Marshal(Status{Job: Entry{ID: "a", Kernel: "echo"}, Status: orchestrator.Snapshot{Total: -1}})
	var s Status
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.Job.Kernel != "echo" || s.Status.Total != -1 {
		t.Errorf("%s: %+v %v", data, s, err)
	}
}

// TestFolderAboveIsChecked: another user may have created /tmp/gpurun-UID.
func TestFolderAboveIsChecked(t *testing.T) {
	above := filepath.Join(t.TempDir(), "gpurun-1000")
	dir := filepath.Join(above, "jobs")
	if err := makeFolderIn(t, dir); err != nil {
		t.Fatalf("own folder: %v", err)
	}
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := makeFolderIn(t, dir); err == nil {
		t.Error("a folder that others can replace is accepted")
	}
	t.Setenv(Variable, dir) // then the user is responsible for the parent
	if err := makeFolder(dir); err != nil {
		t.Errorf("a folder that the user named: %v", err)
	}
}

func makeFolderIn(t *testing.T, dir string) error {
	t.Helper()
	t.Setenv(Variable, "")
	return makeFolder(dir)
}
