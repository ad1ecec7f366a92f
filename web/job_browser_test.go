//go:build browser

package web_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// programDir is the folder of the program that tests have built.
var programDir string

// program builds gpurun once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gpurun-browser-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "gpurun")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/gpurun").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gpurun: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// job is a job in a folder of its own that takes minutes unless it is stopped.
type job struct {
	t    *testing.T
	dir  string
	port string
	cmd  *exec.Cmd
	url  string
}

const kernel = `
import time

def process(batch):
    time.sleep(0.05)
    for record in batch:
        if record["id"] % 500 == 7:
            raise ValueError("text %d has no tokens" % record["id"])
    return {"n": [len(record["text"]) for record in batch]}
`

func newJob(t *testing.T) *job {
	t.Helper()
	j := &job{t: t, dir: t.TempDir(), port: freePort(t)}
	var in strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&in, "{\"id\":%d,\"text\":\"record number %d\"}\n", i, i)
	}
	j.write("in.jsonl", in.String())
	j.write("kernel.py", kernel)
	return j
}

func (j *job) write(name, text string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, name), []byte(text), 0o666); err != nil {
		j.t.Fatal(err)
	}
}

// command returns gpurun in the job's folder, apart from the jobs of the machine.
func (j *job) command(args ...string) *exec.Cmd {
	j.t.Helper()
	path, err := program()
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = j.dir
	cmd.Env = append(os.Environ(), "GPURUN_JOBS_DIR="+filepath.Join(j.dir, "jobs"), "GPURUN_LEASE_DIR="+filepath.Join(j.dir, "leases"))
	return cmd
}

// freePort returns a port that no one listens on. The runs of a job share it.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// start runs or resumes the job and waits for its address.
func (j *job) start() {
	j.t.Helper()
	j.cmd = j.command("run", "-k", "kernel.py", "in.jsonl", "-o", "out.jsonl", "--gpus", "cpu:2", "--batch-size", "10",
		"--checkpoint", "1s", "--listen", "127.0.0.1:"+j.port, "--listen-token", "token")
	stderr, err := j.cmd.StderrPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	cmd := j.cmd
	j.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	found := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if address := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); address != "" {
				found <- address
			}
		}
	}()
	select {
	case j.url = <-found:
	case <-time.After(patience):
		j.t.Fatal("gpurun printed no address")
	}
	address, err := url.Parse(j.url)
	if err != nil {
		j.t.Fatal(err)
	}
	j.port = address.Port()
}

// ends waits for the end of the job's process.
func (j *job) ends() {
	j.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- j.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		j.t.Fatal("the job did not end")
	}
}

const (
	pill = `document.querySelector("h1 + .pill").textContent`
	done = `Number(document.querySelector(".progress-line").textContent.match(/([\d,]+) of/)[1].replaceAll(",", ""))`
)

// press clicks the button with a text.
func (b *browser) press(text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("button")].find((b) => b.textContent === %q && b.checkVisibility() && !b.disabled)`, text)
	b.await("the button "+text, find)
	eval[any](b, find+".click()")
}

// A person opens the page, sees the charts move and a record fail, pauses and resumes the
// job, sees it killed and resumed, and stops it.
func TestBrowserJob(t *testing.T) {
	b := openBrowser(t, 1400)
	j := newJob(t)
	j.start()
	b.open(j.url)
	b.await("the job", `document.querySelector("h1").textContent === "out.jsonl" && `+pill+` === "running"`)
	if address := eval[string](b, "location.href"); strings.Contains(address, "#") {
		t.Errorf("the token stays in the address: %s", address)
	}

	b.await("a chart", `document.querySelectorAll(".plot canvas").length >= 2`)
	before := eval[string](b, `document.querySelector(".plot canvas").toDataURL()`)
	b.await("the chart moves", fmt.Sprintf("document.querySelector('.plot canvas').toDataURL() !== %q && %s > 0", before, done))

	b.await("a failure", `document.querySelector(".group .message").textContent.includes("has no tokens")`)
	eval[any](b, `document.querySelector(".group summary").click()`)
	b.await("its traceback", `document.querySelector(".group pre").textContent.includes("raise ValueError")`)
	b.shot("running")

	b.press("Pause")
	b.await("the pause", pill+` === "paused"`)
	b.await("the pause in the timeline", `[...document.querySelectorAll(".events li")].some((e) => e.textContent.includes("paused"))`)
	b.press("Resume")
	b.await("the job continues", pill+` === "running"`)
	b.await("progress", fmt.Sprintf("%s > %d", done, eval[int64](b, done)))

	b.keyboard()

	if err := j.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.ends()
	b.await("the loss of the connection", `!document.querySelector(".banner").hidden && `+pill+` === "not connected"`)
	b.shot("disconnected")
	j.start()
	b.await("the connection", `document.querySelector(".banner").hidden`)
	b.await("the resumed job in the timeline", `[...document.querySelectorAll(".events li")].some((e) => e.textContent.includes("resumed"))`)
	b.await("progress", fmt.Sprintf("%s > %d", done, eval[int64](b, done)))
	b.shot("resumed")

	b.press("Cancel")
	b.await("the question", `document.querySelector("dialog").open`)
	b.press("Cancel the job")
	j.ends()
	b.noErrors("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_SOCKET_NOT_CONNECTED")

	if out, err := j.command("report", "out.jsonl", "--html", "report.html").CombinedOutput(); err != nil {
		t.Fatalf("report: %v\n%s", err, out)
	}
	r := openBrowser(t, 1400)
	r.open("file://" + filepath.Join(j.dir, "report.html"))
	r.await("the report", pill+` === "interrupted"`)
	r.await("its charts", `document.querySelectorAll(".plot canvas").length >= 2`)
	r.await("both runs", `[...document.querySelectorAll(".events li")].filter((e) => e.textContent.includes("started with")).length === 2`)
	eval[any](r, `document.querySelector(".group summary").click()`)
	r.await("a traceback", `document.querySelector(".group pre").textContent.includes("raise ValueError")`)
	r.shot("report")
	r.noErrors()
}

// keyboard reaches every control with the Tab key, and opens and leaves the dialog.
func (b *browser) keyboard() {
	b.t.Helper()
	eval[any](b, `document.activeElement.blur()`)
	var reached []string
	for range 20 {
		b.run(chromedp.KeyEvent(kb.Tab))
		reached = append(reached, eval[string](b, `(document.activeElement.getAttribute("aria-label") || document.activeElement.textContent).slice(0, 40)`))
	}
	for _, want := range []string{"Pause", "Cancel", "Switch to", "Input records", "10 min", "All"} {
		if !strings.Contains(strings.Join(reached, "\n"), want) {
			b.t.Errorf("Tab does not reach %q: %q", want, reached)
		}
	}
	eval[any](b, `document.querySelector(".strip").focus()`)
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	b.await("a cell of the input", `document.querySelector("output").textContent.startsWith("records 1 –")`)
	eval[any](b, `[...document.querySelectorAll("button")].find((b) => b.textContent === "Cancel").focus()`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.await("the dialog", `document.querySelector("dialog").open`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.await("no dialog", `!document.querySelector("dialog").open`)
	if phase := eval[string](b, pill); phase != "running" {
		b.t.Errorf("after Escape the job is %s", phase)
	}
}
