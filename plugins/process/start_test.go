package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

func TestStartFailures(t *testing.T) {
	short := 300 * time.Millisecond
	tests := []struct {
		program string
		timeout time.Duration
		kind    fault.Kind
		says    []string
		detail  string
	}{
		{"exit0", 0, fault.Incompatible, []string{"ended before its handshake: exit status 0", "plugins.Serve"}, ""},
		{"exit3", 0, fault.Incompatible, []string{"exit status 3", "cannot find libcuda.so.1", "plugins.Serve"}, "some warning"},
		{"panics at start", 0, fault.Incompatible, []string{"exit status 2", "panic: no model folder"}, "goroutine 1"},
		{"flood", 0, fault.Incompatible, []string{"printed over 1048576 bytes", "no handshake"}, "yyy"},
		{"sleeps", short, fault.Incompatible, []string{"printed no handshake within 300ms", "plugins.Serve"}, ""},
		{"stopped at start", short, fault.Incompatible, []string{"printed no handshake within 300ms"}, ""},
		{"stopped after handshake", time.Second, fault.Timeout, []string{"did not answer within 1s after its handshake"}, ""},
		{"version 99", 0, fault.Incompatible, []string{"another version of the kernel protocol", "(1)", "99", "rebuild"}, ""},
		{"no socket", 0, fault.Incompatible, []string{"connect to kernel", "/tmp/gpurun-test-nobody-listens"}, ""},
		{"ends after handshake", 0, fault.Incompatible, []string{"ended right after its handshake: exit status 4"}, ""},
	}
	for _, test := range tests {
		t.Run(test.program, func(t *testing.T) {
			nothingLeft(t)
			command := program(t, test.program)
			if test.timeout > 0 {
				command.StartTimeout = test.timeout
			}
			begin := time.Now()
			p, err := Start(t.Context(), command)
			if err == nil {
				p.Kill()
				t.Fatal("it started")
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			e := fault.As(err)
			if e == nil || e.Kind != test.kind {
				t.Fatalf("not of kind %s: %#v", test.kind, err)
			}
			if quiet := strings.Contains(e.Message, "no handshake"); quiet != (e.Code == fault.NotAKernel) {
				t.Errorf("code %q: %s", e.Code, e.Message)
			}
			for _, word := range test.says {
				if !strings.Contains(e.Message, word) {
					t.Errorf("no %q in: %s", word, e.Message)
				}
			}
			if !strings.Contains(e.Detail, test.detail) {
				t.Errorf("no %q in the detail: %s", test.detail, e.Detail)
			}
			if strings.Contains(e.Message, "\n") {
				t.Errorf("more than one line: %s", e.Message)
			}
		})
	}
}

func TestCannotExecute(t *testing.T) {
	nothingLeft(t)
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "permission denied",
		write("plain", "x", 0o644):    "(is it executable?)",
		write("script", "print('hello')\n", 0o755):          "#!/usr/bin/env python3",
		write("interpreter", "#!/no/such/python3\n", 0o755): "no such file",
	} {
		_, err := Start(t.Context(), Command{Path: path, SocketDir: socketDir(t)})
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := Start(t.Context(), Command{Path: "/bin/true", SocketDir: "/tmp/" + strings.Repeat("x", 80)})
	if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("long folder: %v", err)
	}
}

func TestStartCanceled(t *testing.T) {
	for name, delay := range map[string]time.Duration{"before": -1, "at once": 0, "later": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if delay < 0 {
				cancel()
			} else {
				time.AfterFunc(delay, cancel)
			}
			begin := time.Now()
			if _, err := Start(ctx, program(t, "sleeps")); !errors.Is(err, context.Canceled) {
				t.Errorf("error: %v", err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Kernels that print in unexpected places still work.
func TestNoisyKernels(t *testing.T) {
	for name, logged := range map[string]string{
		"noise": "a library's banner", "noise without end": "loading 51", "long line": strings.Repeat("x", 200<<10),
	} {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			command := program(t, name)
			var log bytes.Buffer
			command.Log = &log
			p := start(t, command)
			works(t, p)
			if _, err := plugins.Call(t.Context(), p, words("long line", "print a lot")); err != nil {
				t.Errorf("printing: %v", err)
			}
			works(t, p)
			if err := p.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			for _, want := range []string{logged, "end of the long line", "0123456789abcdef"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log has no %.40q", want)
				}
			}
		})
	}
}

// The kernel gets exactly the given environment and folder.
func TestSurroundings(t *testing.T) {
	nothingLeft(t)
	command := program(t, "good")
	p := start(t, command)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for variable := range strings.SplitSeq(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "PLUGIN_") || name == protocol.Handshake.MagicCookieKey || name == protocol.ArenaVariable {
			continue
		}
		found := false
		for _, given := range command.Env {
			found = found || given == variable
		}
		if !found {
			t.Errorf("it has %s", variable)
		}
	}
	if dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.Pid())); dir != command.Dir {
		t.Errorf("it runs in %s", dir)
	}
}

// A kernel started by hand explains what it is.
func TestStartedByHand(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p, err := proc.Start(proc.Command{Path: os.Args[0], Env: append(os.Environ(), kernelVariable+"=good"), Stderr: write})
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	_, _ = said.ReadFrom(read)
	<-p.Done()
	if p.Exit().Code != 2 || !strings.Contains(said.String(), "gpurun run -k ./") {
		t.Errorf("%s: %s", p.Exit(), said.String())
	}
}
