package exec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// kernelVariable turns the test binary into a kernel program.
const kernelVariable = "GPURUN_TEST_KERNEL"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && os.Args[1] == "unruly" {
		unruly(os.Args[2:])
		os.Exit(0)
	}
	if os.Getenv(kernelVariable) == "exec" {
		plugins.Serve(exec.New())
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func config(t testing.TB, c resolve.ExecConfig) plugins.Config {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestConformance(t *testing.T) {
	for _, test := range []struct {
		name, command, mode string
		large               int
	}{
		{"default", "cat", "", 0},
		{"stream", "cat", "stream", 0},
		{"stream of a pipeline", "cat | sed 's/quick/slow/'", "stream", 0},
		{"batch at the end", "tac | tac", "batch", 0},
		{"per record", "cat", "per-record", 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			kerneltest.Run(t, exec.New, kerneltest.Options{
				Config:     config(t, resolve.ExecConfig{Command: test.command, Mode: test.mode}),
				Device:     plugins.Device{Name: "CPU 0", Threads: 2},
				LargeBatch: test.large,
			})
		})
	}
	t.Run("binary", func(t *testing.T) {
		t.Setenv(kernelVariable, "exec")
		kerneltest.RunBinary(t, process.Command{Path: os.Args[0], SocketDir: t.TempDir()}, kerneltest.Options{
			Config: config(t, resolve.ExecConfig{Command: "cat"}),
		})
	})
}

// open returns an open kernel, which is closed at the end of the test.
func open(t *testing.T, c resolve.ExecConfig) plugins.Kernel {
	t.Helper()
	k := exec.New()
	if err := k.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 2}, config(t, c)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func batch(records ...string) plugins.Batch {
	list := make([][]byte, len(records))
	for i, record := range records {
		list[i] = []byte(record)
	}
	return plugins.NewBatch(list)
}

// call returns the outcome of each record as text.
func call(t *testing.T, k plugins.Kernel, records ...string) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	done := make(chan struct{})
	var list []string
	var err error
	go func() {
		defer close(done)
		var results *plugins.Results
		results, err = plugins.Call(ctx, k, batch(records...))
		if err != nil {
			return
		}
		for i := range results.Len() {
			switch result := results.At(i); result.Verdict {
			case plugins.Lines:
				list = append(list, string(bytes.Join(result.Lines, []byte("+"))))
			case plugins.Failed:
				list = append(list, "failed: "+result.Message)
			default:
				list = append(list, result.Verdict.String())
			}
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the kernel hangs")
	}
	return list, err
}

func expect(t *testing.T, k plugins.Kernel, records, want []string) {
	t.Helper()
	got, err := call(t, k, records...)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got %q, not %q", got, want)
	}
}

func TestModes(t *testing.T) {
	t.Run("stream keeps its process", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `n=0; while read a; do n=$((n+1)); echo $n; done`, Mode: exec.ModeStream})
		expect(t, k, []string{"a", "b"}, []string{"1", "2"})
		expect(t, k, []string{"c"}, []string{"3"})
	})
	t.Run("by default each batch has a process", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `awk '{ print ++n }'`})
		expect(t, k, []string{"a", "b"}, []string{"1", "2"})
		expect(t, k, []string{"c"}, []string{"1"})
	})
	t.Run("answers only at the end", func(t *testing.T) {
		expect(t, open(t, resolve.ExecConfig{Command: "sort", Mode: exec.ModeBatch}), []string{"3", "1", "2"}, []string{"1", "2", "3"})
		expect(t, open(t, resolve.ExecConfig{Command: "tac", Mode: exec.ModeBatch}), []string{"3", "1", "2"}, []string{"2", "1", "3"})
	})
	t.Run("last line without its end", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `printf '1\n2'`, Mode: exec.ModeBatch})
		expect(t, k, []string{"a", "b"}, []string{"1", "2"})
	})
	t.Run("empty line drops", func(t *testing.T) {
		for _, mode := range []string{exec.ModeStream, exec.ModeBatch} {
			k := open(t, resolve.ExecConfig{Command: `sed -u 's/drop//'`, Mode: mode})
			expect(t, k, []string{"1", "drop", "3"}, []string{"1", "drop", "3"})
		}
	})
	t.Run("carriage return is not part of a line", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `sed -u 's/$/\r/'`, Mode: exec.ModeStream})
		expect(t, k, []string{"1", ""}, []string{"1", "drop"})
	})
	t.Run("per record", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Mode: exec.ModePerRecord, Command: `
			read n
			case $n in
			0) ;;
			-*) echo "no negative numbers" >&2; exit 3 ;;
			*) seq $n ;;
			esac`})
		expect(t, k, []string{"2", "0", "-1", "1"}, []string{"1+2", "drop", "failed: exec: the program ended: exit status 3: no negative numbers", "1"})
	})
	t.Run("a program that does not read", func(t *testing.T) {
		for _, mode := range []string{exec.ModeBatch, exec.ModePerRecord} {
			k := open(t, resolve.ExecConfig{Mode: mode, Command: `echo 1`})
			expect(t, k, []string{strings.Repeat("x", 1<<20)}, []string{"1"})
		}
	})
}

func TestConfiguration(t *testing.T) {
	k := open(t, resolve.ExecConfig{Command: `printf '%s\n' "$GPURUN_KERNEL_CONFIG"`, Mode: exec.ModeBatch, Config: json.RawMessage(`{"model": "a b"}`)})
	got, err := call(t, k, "1")
	if err != nil || len(got) != 1 || strings.ReplaceAll(got[0], " ", "") != `{"model":"ab"}` {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("GPURUN_KERNEL", "a cookie")
	t.Setenv("PLUGIN_PROTOCOL_VERSIONS", "1")
	k = open(t, resolve.ExecConfig{Command: `env | grep -c -e ^PLUGIN_ -e ^GPURUN_KERNEL || true`, Mode: exec.ModeBatch})
	expect(t, k, []string{"1"}, []string{"0"})
}

// Mistakes that can be found without a record are reported at plan time, and again when
// the kernel is opened.
func TestPlainMistakes(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\ncat\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	tests := []struct {
		name, command, mode string
		kind                fault.Kind
		says                []string
	}{
		{"not found", "no-such-program --fast", "", fault.Incompatible, []string{"program no-such-program not found"}},
		{"no such file", "./no-such-program", "", fault.Incompatible, []string{"program ./no-such-program not found"}},
		{"not executable", plain, "", fault.Incompatible, []string{"not executable", "chmod +x " + plain}},
		{"current directory", "plain -x", "", fault.Incompatible, []string{"exec:./plain -x"}},
		{"folder", dir, "", fault.Incompatible, []string{"is a folder"}},
		{"no shell", "cat | (", "", fault.Incompatible, []string{"the shell cannot parse", "yntax"}},
		{"nothing", "", "", fault.Incompatible, []string{"exec needs a program"}},
		{"blank", "  ", "", fault.Incompatible, []string{"exec needs a program"}},
		{"mode", "cat", "lines", fault.Usage, []string{`"lines"`, "per-record"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := config(t, resolve.ExecConfig{Command: test.command, Mode: test.mode})
			_, described := exec.New().Describe(t.Context(), c)
			opened := exec.New().Open(t.Context(), plugins.Device{}, c)
			for when, err := range map[string]error{"describe": described, "open": opened} {
				if fault.KindOf(err) != test.kind {
					t.Fatalf("%s: kind %s: %v", when, fault.KindOf(err), err)
				}
				for _, word := range test.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s: no %q in: %v", when, word, err)
					}
				}
			}
		})
	}
	for _, command := range []string{"cat", "/bin/cat -u", "LC_ALL=C sort", "'/bin/cat'", "$HOME/x", "{ cat; }", "cd / && cat", "test -t 0"} {
		if _, err := exec.New().Describe(t.Context(), config(t, resolve.ExecConfig{Command: command})); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// Whatever a program does wrong, the error says so, and the next batch gets a new
// program.
func TestMisbehavingPrograms(t *testing.T) {
	tests := []struct {
		name, command, mode string
		says                []string
	}{
		{"exits in the middle", `head -n 1; echo "no more memory" >&2; exit 4`, "stream", []string{"after 1 of 3 lines", "exit status 4", ": no more memory"}},
		{"is killed", `read a; echo $a; kill -SEGV $$`, "stream", []string{"after 1 of 3 lines", "killed by SIGSEGV"}},
		{"exits at once", `exit 0`, "stream", []string{"after 0 of 3 lines", "exit status 0"}},
		{"skips an answer", `sed -u -e 2d; echo "line 2 is bad" >&2; exit 5`, "stream", []string{"after 2 of 3 lines", "exit status 5: line 2 is bad"}},
		{"skips an answer in silence", `sed -u 2d`, "stream", []string{"after 2 of 3 lines", "exit status 0"}},
		{"skips an answer in a batch", `sed 2d; echo "line 2 is bad" >&2; exit 5`, "batch", []string{"exit status 5: line 2 is bad"}},
		{"exits in a batch", `head -n 1; echo "no more memory" >&2; exit 4`, "batch", []string{"exit status 4", ": no more memory"}},
		{"too few in a batch", `head -n 1`, "batch", []string{"wrote 1 line for 3 records"}},
		{"too many in a batch", `sed p`, "batch", []string{"wrote 6 lines for 3 records"}},
		{"too many, one for each record", `cat; echo "# 3 records"`, "batch", []string{"wrote 4 lines for 3 records; line 4 is not JSON: \"# 3 records\""}},
		{"too few and a message", `echo "no more" >&2; head -n 1`, "batch", []string{"wrote 1 line for 3 records: no more"}},
		{"floods", `yes '{}'`, "batch", []string{"the program wrote", "lines for 3 records"}},
		{"not found in a pipeline", `cat | no-such-program`, "batch", []string{"exit status 127", "no-such-program"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := open(t, resolve.ExecConfig{Command: test.command, Mode: test.mode})
			for range 2 {
				_, err := call(t, k, "1", "2", "3")
				if err == nil {
					t.Fatal("no error")
				}
				want := fault.Batch
				if strings.Contains(err.Error(), "killed by") {
					want = fault.Crash
				}
				if fault.KindOf(err) != want {
					t.Errorf("kind %s", fault.KindOf(err))
				}
				for _, word := range test.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("no %q in: %v", word, err)
					}
				}
			}
		})
	}
}

// In stream mode without an identity, a line too many makes every match by position doubtful:
// it is an error of the kernel, which no record explains.
func TestStreamEndsWithALineTooMany(t *testing.T) {
	refuses := func(t *testing.T, err error) {
		t.Helper()
		if fault.KindOf(err) != fault.Incompatible || !strings.Contains(err.Error(), "more lines than it was given records") {
			t.Errorf("%s: %v", fault.KindOf(err), err)
		}
	}
	t.Run("in a batch", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `while read a; do printf '%s\nextra\n' $a; done`, Mode: exec.ModeStream})
		_, err := call(t, k, "1")
		refuses(t, err)
	})
	t.Run("between batches", func(t *testing.T) {
		go1, late := filepath.Join(t.TempDir(), "go"), filepath.Join(t.TempDir(), "late")
		k := open(t, resolve.ExecConfig{Mode: exec.ModeStream, Command: fmt.Sprintf(
			`while read a; do echo $a; case $a in 2) (until [ -e %s ]; do sleep 0.01; done; echo extra; : > %s) & ;; esac; done`, go1, late)})
		expect(t, k, []string{"1"}, []string{"1"})
		expect(t, k, []string{"2"}, []string{"2"})
		if err := os.WriteFile(go1, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, err := os.Stat(late); err != nil; _, err = os.Stat(late) {
			time.Sleep(10 * time.Millisecond)
		}
		_, err := call(t, k, "3")
		refuses(t, err)
		expect(t, k, []string{"4"}, []string{"4"}) // with a new program
	})
	t.Run("at the end", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `while read a; do echo $a; done; echo 2`, Mode: exec.ModeStream})
		expect(t, k, []string{"1"}, []string{"1"})
		refuses(t, k.Close())
	})
	t.Run("at the end, no answer", func(t *testing.T) {
		k := open(t, resolve.ExecConfig{Command: `while read a; do echo $a; done; echo total`, Mode: exec.ModeStream})
		expect(t, k, []string{"1"}, []string{"1"})
		if err := k.Close(); err == nil || fault.As(err) != nil || !strings.Contains(err.Error(), `more lines than it was given records: "total"`) {
			t.Errorf("%v", err)
		}
	})
}

// A stream program that is silent for long gets the end of its input. If it was only slow, it
// answers everything, and the next batch gets a new process.
func TestSlowStreamProgramIsNotBlamed(t *testing.T) {
	records := make([]string, 20)
	for i := range records {
		records[i] = strings.Repeat("x", 64<<10) // more than a pipe holds
	}
	k := open(t, resolve.ExecConfig{Mode: exec.ModeStream, Command: `read a; echo $a; sleep 3; cat`})
	expect(t, k, records, records)
	expect(t, k, records[:2], records[:2])
}

// Close reports how a program exits after the last batch.
func TestCloseTellsTheEnd(t *testing.T) {
	k := open(t, resolve.ExecConfig{Command: `cat; echo "cannot save" >&2; exit 6`, Mode: exec.ModeStream})
	expect(t, k, []string{"1"}, []string{"1"})
	if err := k.Close(); err == nil || !strings.Contains(err.Error(), "exit status 6: cannot save") {
		t.Errorf("close: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Lines larger than every buffer and pipe, in both directions at once.
func TestLargeRecords(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	records := []string{big, "small", big, big}
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch, exec.ModePerRecord} {
		t.Run(mode, func(t *testing.T) {
			expect(t, open(t, resolve.ExecConfig{Command: "cat", Mode: mode}), records, records)
		})
	}
	t.Run("many", func(t *testing.T) {
		many := make([]string, 20000)
		for i := range many {
			many[i] = fmt.Sprintf(`{"id":%d}`, i)
		}
		expect(t, open(t, resolve.ExecConfig{Command: "cat"}), many, many)
	})
}

// The children of a program do not outlive it and do not block the kernel.
func TestGrandchildren(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch, exec.ModePerRecord} {
		t.Run(mode, func(t *testing.T) {
			defer os.Remove(pids)
			k := open(t, resolve.ExecConfig{Mode: mode, Command: fmt.Sprintf(`sleep 1000 & echo $! >> %s; cat`, pids)})
			expect(t, k, []string{"1"}, []string{"1"})
			begin := time.Now()
			if err := k.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("closing took %s", took)
			}
			data, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range strings.Fields(string(data)) {
				gone(t, field)
			}
		})
	}
	// A child in its own session holds the output open: the kernel still notices that the
	// program has exited. The worker, as a subreaper, reaps such children.
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch} {
		t.Run("setsid, "+mode, func(t *testing.T) {
			defer os.Remove(pids)
			k := open(t, resolve.ExecConfig{Mode: mode, Command: fmt.Sprintf(`setsid sleep 1000 & echo $! >> %s; sleep 0.1; head -n 1; exit 3`, pids)})
			defer func() {
				data, _ := os.ReadFile(pids)
				for _, field := range strings.Fields(string(data)) {
					var pid int
					if _, err := fmt.Sscan(field, &pid); err == nil {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			}()
			begin := time.Now()
			_, err := call(t, k, "1", "2")
			if err == nil || !strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("error: %v", err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func gone(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(data), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("process %s lives on", pid)
			return
		}
	}
}
