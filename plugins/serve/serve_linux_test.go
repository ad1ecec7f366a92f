package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/resolve"
)

const template = `{"prompt":"{text}","output":"answer"}`

func config(t *testing.T, command, user string) plugins.Config {
	t.Helper()
	data, err := json.Marshal(resolve.ServeConfig{Command: command, Config: json.RawMessage(user)})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tryOpen(ctx context.Context, t *testing.T, command, user string) (*kernel, error) {
	t.Helper()
	k := New().(*kernel)
	t.Cleanup(func() { _ = k.Close() })
	return k, k.Open(ctx, plugins.Device{Name: "GPU 0", Count: 2, GPU: true, Threads: 1}, config(t, command, user))
}

func open(t *testing.T, role, user string) *kernel {
	t.Helper()
	k, err := tryOpen(t.Context(), t, command(role), user)
	if err != nil {
		t.Fatalf("%v\n%s", err, fault.As(err).Detail)
	}
	return k
}

func ask(t *testing.T, k *kernel, text string) plugins.Answer {
	t.Helper()
	return k.Answer(t.Context(), plugins.NewBatch([][]byte{fmt.Appendf(nil, `{"text":%q}`, text)}).At(0))
}

func TestContract(t *testing.T) {
	kerneltest.Run(t, New, kerneltest.Options{Config: config(t, command("good"), template), LargeBatch: 100})
}

// The server gets a place and the number of its GPUs, is ready in the way that it shows,
// and names its model.
func TestServers(t *testing.T) {
	for _, role := range []string{"good", "socket", "all addresses", "without /health", "slow start", "taken " + filepath.Join(t.TempDir(), "once")} {
		k := open(t, role, template)
		if a := ask(t, k, "hello"); a.Verdict != plugins.Lines || string(a.Lines[0]) != `{"text":"hello","answer":"tiny: hello"}` {
			t.Errorf("%s: %+v", role, a)
		}
		if words := k.server.words.String(); !strings.Contains(words, "the server starts with 2 GPUs") {
			t.Errorf("%s: it printed %q", role, words)
		}
	}
}

// A server that does not become ready is an error with what it has printed.
func TestNotReady(t *testing.T) {
	for role, want := range map[string]string{
		"never": "was not ready within 2s: connection refused",
		"exit":  "the server exited: exit status 3: no such model, before it was ready",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if role == "exit" {
			ctx = t.Context()
		}
		k, err := tryOpen(ctx, t, command(role), template)
		cancel()
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) || !strings.Contains(fault.As(err).Detail, "the server starts") {
			t.Errorf("%s: %v", role, err)
		}
		select { // with its children; those of the next server must not be among them
		case <-k.server.settled:
		case <-time.After(30 * time.Second):
			t.Errorf("%s: the server still runs", role)
		}
	}
}

// What is wrong is reported before the server is started.
func TestMistakes(t *testing.T) {
	for _, test := range [][3]string{
		{"vllm serve m", template, "does not say where the server listens"},
		{"no-such-program --port {port}", template, "serve: program no-such-program not found"},
		{"echo 'x {port}", template, "the shell cannot parse"},
		{"true {port}", `{"health_timeout":"soon"}`, `health_timeout "soon": use a number of seconds`},
		{"true {port}", `{"health_timeout":5e-9}`, `health_timeout 5e-9: use a number of seconds`},
		{"true {port}", `{"promt":"x"}`, `unknown field "promt"`},
		{"true {port}", `[]`, "kernel configuration"},
		{"true {port}", `{"prompt":"{text"}`, "unpaired"},
	} {
		if _, err := New().Describe(t.Context(), config(t, test[0], test[1])); err == nil || !strings.Contains(err.Error(), test[2]) {
			t.Errorf("%s %s: %v, want %q", test[0], test[1], err, test[2])
		}
	}
	info, err := New().Describe(t.Context(), config(t, "sleep {port}", template))
	if err != nil || info.Concurrency != defaultConcurrency || info.NoDevice || info.Name != "serve:sleep {port}" {
		t.Errorf("%+v %v", info, err)
	}
}

// A server may be given any time to answer nothing: the longest is a hundred years.
func TestLongHealthTimeout(t *testing.T) {
	k := open(t, "good", `{"prompt":"{text}","output":"answer","health_timeout":1e300}`)
	if a := ask(t, k, "hello"); a.Verdict != plugins.Lines {
		t.Errorf("%+v", a)
	}
}

// The records of a server that is lost fail with a crash, so that the worker starts another
// one; a connection that the server closes costs its record an attempt.
func TestLostServer(t *testing.T) {
	for text, want := range map[string]struct {
		message string
		sign    fault.Sign
	}{
		"exit": {"the server exited: exit status 9: out of paper", ""},
		"kill": {"the server exited: killed by SIGKILL", fault.Outside},
		"stop": {"the server answered nothing for 2s", ""},
	} {
		t.Run(text, func(t *testing.T) {
			k := open(t, "good", `{"prompt":"{text}","health_timeout":2,"concurrency":8}`)
			if a := ask(t, k, "close"); a.Verdict != plugins.Retry {
				t.Errorf("%+v", a)
			}
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					if e := fault.As(ask(t, k, "hang").Err); e == nil || e.Kind != fault.Crash {
						t.Errorf("a neighbor: %v", e)
					}
				})
			}
			e := fault.As(ask(t, k, text).Err)
			if e == nil || e.Kind != fault.Crash || !strings.HasPrefix(e.Message, want.message) || e.Sign != want.sign || !strings.Contains(e.Detail, "the server starts") {
				t.Errorf("%+v", e)
			}
			group.Wait()
			if e := fault.As(ask(t, k, "late").Err); e == nil || e.Kind != fault.Crash {
				t.Errorf("after that: %v", e)
			}
		})
	}
}

// A request that hangs costs only its record.
func TestHangingRequest(t *testing.T) {
	k := open(t, "good", `{"prompt":"{text}","timeout":0.3}`)
	if a := ask(t, k, "hang"); a.Verdict != plugins.Retry || !strings.Contains(a.Message, "did not answer within 300ms") {
		t.Errorf("%+v", a)
	}
	if a := ask(t, k, "hello"); a.Verdict != plugins.Lines {
		t.Errorf("%+v", a)
	}
}

// Nothing that the server has started survives it, however it ends.
func TestNothingSurvives(t *testing.T) {
	for i, end := range []string{"close", "exit"} {
		seconds := fmt.Sprintf("%d.%d", 1000+i, os.Getpid())
		k := open(t, "family "+seconds, template)
		if !sleeps(seconds) {
			t.Fatal("there is no child: this test shows nothing")
		}
		if end == "exit" {
			_ = ask(t, k, end)
		} else {
			_ = k.Close()
		}
		if sleeps(seconds) {
			t.Errorf("%s: the server's child survives", end)
			_ = exec.Command("pkill", "-f", "^sleep "+seconds+"$").Run()
		}
		_ = k.Close()
		if folder := k.server.place.folder; folder != "" {
			t.Errorf("left behind: %s", folder)
		}
	}
}

// sleeps reports whether a process sleeps for so many seconds.
func sleeps(seconds string) bool {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if data, _ := os.ReadFile(path); bytes.Equal(data, []byte("sleep\x00"+seconds+"\x00")) {
			return true
		}
	}
	return false
}
