package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// nobody is a user that no test runs as.
const nobody = 65534

// publish writes a file that others read as soon as it exists.
func publish(path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		panic(err)
	}
}

// thief answers every request as a model server does, and counts them.
type thief struct {
	requests atomic.Int64
	mu       sync.Mutex
	open     []net.Listener
}

func (th *thief) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	th.requests.Add(1)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"data":[{"id":"forged"}],"choices":[{"message":{"content":"forged"}}]}`)
}

// take listens at the port as soon as it is free.
func (th *thief) take(port string) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		th.mu.Lock()
		th.open = append(th.open, listener)
		th.mu.Unlock()
		go http.Serve(listener, th)
		return
	}
}

// watch takes each port that the file names, until the context ends.
func (th *thief) watch(ctx context.Context, file string) {
	defer func() {
		for _, listener := range th.open {
			_ = listener.Close()
		}
	}()
	for last := ""; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if port, err := os.ReadFile(file); err == nil && string(port) != last {
			last = string(port)
			th.take(last)
		}
	}
}

// squatter is a process of another user that takes the ports of servers that load for long.
func squatter(file string) {
	if os.Getuid() == 0 {
		if err := syscall.Setuid(nobody); err != nil {
			panic(err)
		}
	}
	th := new(thief)
	go th.watch(context.Background(), file)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	fmt.Println(th.requests.Load())
}

// kernelProcess opens the kernel, and prints why it could not.
func kernelProcess(command string) {
	k := New()
	fmt.Println(k.Open(context.Background(), plugins.Device{}, plugins.Config(command)))
	_ = k.Close()
}

// A port that another program takes before the server does is refused, whoever runs that
// program, and nothing is sent to it.
func TestForeignListenerGetsNothing(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "secret")
	file := filepath.Join(t.TempDir(), "port")
	ctx, cancel := context.WithCancel(t.Context())
	th, ended := new(thief), make(chan struct{})
	go func() { defer close(ended); th.watch(ctx, file) }()
	_, err := tryOpen(t.Context(), t, command("silent "+file), template)
	cancel()
	<-ended
	checkForeign(t, fmt.Sprint(err), os.Getuid())
	if fault.KindOf(err) != fault.Incompatible {
		t.Errorf("kind %s", fault.KindOf(err))
	}
	if n := th.requests.Load(); n != 0 {
		t.Errorf("it got %d requests", n)
	}
}

func checkForeign(t *testing.T, message string, uid int) {
	t.Helper()
	if !strings.Contains(message, fmt.Sprintf("belongs to a process of user %d that gpurun did not start", uid)) || !strings.Contains(message, "{socket}") {
		t.Errorf("%s", message)
	}
}

func TestListenerOfAnotherUserGetsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be another user")
	}
	path := os.Args[0]
	folder, err := os.MkdirTemp("", "gpurun-port-") // which others can read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "port")
	other := exec.Command(path, file)
	other.Env = append(os.Environ(), roleVariable+"=squatter")
	hold, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var counted strings.Builder
	other.Stdout = &counted
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	opener := exec.Command(path, string(config(t, command("silent "+file), template)))
	opener.Env = append(os.Environ(), roleVariable+"=kernel", "OPENAI_API_KEY=secret")
	message, err := opener.Output()
	if err != nil {
		t.Error(err)
	}
	_ = hold.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
	checkForeign(t, string(message), nobody)
	if counted.String() != "0\n" {
		t.Errorf("it got %s requests", counted.String())
	}
}

// A program that takes the port while the job runs gets no record either: the server counts
// as lost, and the worker starts another.
func TestPortTakenOverGetsNothing(t *testing.T) {
	k := open(t, "good", template)
	if a := ask(t, k, "hello"); a.Verdict != plugins.Lines {
		t.Fatalf("%+v", a)
	}
	th := new(thief)
	taken := make(chan struct{})
	go func() { defer close(taken); th.take(strconv.Itoa(k.server.place.port)) }()
	_ = ask(t, k, "leave") // the record after next gets its answer
	<-taken
	t.Cleanup(func() { _ = th.open[0].Close() })
	a := ask(t, k, "hello")
	for a.Verdict == plugins.Later || a.Verdict == plugins.Retry {
		a = ask(t, k, "hello")
	}
	if e := fault.As(a.Err); e == nil || e.Kind != fault.Crash || !strings.Contains(e.Message, "lost port") {
		t.Errorf("%+v", a)
	}
	if n := th.requests.Load(); n != 0 {
		t.Errorf("it got %d requests", n)
	}
}

// The server may run in any process below the command, also in one that has left its session.
func TestServerOfADescendant(t *testing.T) {
	for _, prefix := range []string{"true; ", "setsid -w ", "(setsid "} {
		line := prefix + "env " + command("good")
		if strings.HasPrefix(prefix, "(") {
			line += " &); sleep 1000"
		}
		k, err := tryOpen(t.Context(), t, line, template)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if a := ask(t, k, "hello"); a.Verdict != plugins.Lines {
			t.Errorf("%s: %+v", line, a)
		}
		_ = k.Close()
	}
}

// A server that gpurun starts gets a key only if the configuration names its variable.
func TestKeyIsSentOnlyOnRequest(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "secret")
	for user, want := range map[string]string{
		`{"prompt":"{text}"}`: "tiny: key ", `{"prompt":"{text}","api_key_env":"OPENAI_API_KEY"}`: "tiny: key Bearer secret",
	} {
		k := open(t, "good", user)
		if a := ask(t, k, "key"); a.Verdict != plugins.Lines || !strings.Contains(string(a.Lines[0]), `"response":"`+want+`"`) {
			t.Errorf("%s: %s %+v", user, a.Lines, a)
		}
	}
}
