package jobs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
)

// jobVariable makes the test binary act as a registered job until it is killed.
const jobVariable = "SERVER_TEST_JOB"

func TestMain(m *testing.M) {
	if name := os.Getenv(jobVariable); name != "" {
		r, err := Register(Entry{Info: Info{Name: name, Output: "/" + name}})
		fmt.Println(err)
		if err == nil {
			defer r.Serve(answers, last)()
		}
		time.Sleep(time.Hour)
	}
	goleak.VerifyTestMain(m)
}

// answers is an API that answers everything with the state of a job of 100 records.
var answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"job":{"id":"3fa9c201"},"phase":"running","total":100,"workers":[{"name":"GPU 0 #1","gpus":["GPU-0"]}]}`)
})

// last is what is remembered of a job that never started.
func last() view.View { return view.View{} }

// serve registers a job in the test's own folder.
func serve(t *testing.T) *Registration {
	t.Helper()
	t.Setenv(Variable, filepath.Join(t.TempDir(), "jobs"))
	r, err := Register(Entry{Info: Info{Name: "nightly", Output: "/data/out.jsonl", Kernel: "echo"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Serve(answers, last))
	return r
}

func TestStatus(t *testing.T) {
	r := serve(t)
	s, err := NewClient(r.Entry).State(t.Context())
	if err != nil || s.Job.ID != "3fa9c201" || s.Total != 100 || s.Phase != view.PhaseRunning || s.Workers[0].GPUs[0] != "GPU-0" {
		t.Errorf("%+v %v", s, err)
	}
}

// Silent clients take all connections; they time out, and other clients are served.
func TestSilentClients(t *testing.T) {
	r := serve(t)
	for range MaxConnections + 10 {
		conn, err := net.Dial("unix", r.Entry.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := NewClient(r.Entry).State(ctx); err != nil {
		t.Error(err)
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
	r := serve(t)
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
	r := serve(t)
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
	end := r.Serve(answers, last)
	if _, err := NewClient(r.Entry).State(t.Context()); err != nil {
		t.Error(err)
	}
	end()
	if _, err := os.Stat(filepath.Dir(r.Entry.Socket)); err == nil {
		t.Error("the socket's folder is left")
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
