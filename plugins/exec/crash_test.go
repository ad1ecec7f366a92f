package exec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// A program killed by a signal has crashed, which does not condemn its records.
func TestKilledProgramIsACrash(t *testing.T) {
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch} {
		for _, command := range []string{
			`read a; kill -9 $$`,
			`read a; sh -c 'kill -9 $$'; exit $?`, // as a shell reports it
			`cat >/dev/null & sh -c 'kill -SEGV $$'`,
		} {
			_, err := call(t, open(t, resolve.ExecConfig{Mode: mode, Command: command}), "1")
			if fault.KindOf(err) != fault.Crash {
				t.Errorf("%s, %s: %s: %v", mode, command, fault.KindOf(err), err)
			}
		}
		_, err := call(t, open(t, resolve.ExecConfig{Mode: mode, Command: `read a; exit 3`}), "1")
		if fault.KindOf(err) != fault.Batch {
			t.Errorf("%s: exit status: %s: %v", mode, fault.KindOf(err), err)
		}
	}
}

// A program that exits between two batches does not affect any record.
func TestProgramThatEndsBetweenBatches(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	k := open(t, resolve.ExecConfig{Command: fmt.Sprintf(`echo $$ > %s; cat`, pid), Mode: exec.ModeStream})
	for range 3 {
		expect(t, k, []string{"1"}, []string{"1"})
		data, err := os.ReadFile(pid)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(n, syscall.SIGKILL)
		for deadline := time.Now().Add(10 * time.Second); !exec.HasExited(k); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the kernel does not notice that its program has exited")
			}
		}
	}
}

// In per-record mode a record is blamed only after its program has crashed again, alone,
// and after more attempts if the signal came from outside.
func TestPerRecordBlamesOnlyAfterAnotherCrash(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		want    string
		runs    int
	}{
		"killed once":               {`[ $runs = 1 ] && kill -9 $$; echo $a`, "7", 2},
		"killed three times":        {`[ $runs -le 3 ] && kill -9 $$; echo $a`, "7", 4},
		"crashed once":              {`[ $runs = 1 ] && kill -SEGV $$; echo $a`, "7", 2},
		"crashes":                   {`kill -SEGV $$`, "failed: exec: the program ended: killed by SIGSEGV", 2},
		"rejects":                   {`exit 3`, "failed: exec: the program ended: exit status 3", 1},
		"crashes, then is rejected": {`[ $runs = 1 ] && kill -ABRT $$; exit 4`, "failed: exec: the program ended: exit status 4", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := filepath.Join(t.TempDir(), "runs")
			command := fmt.Sprintf(`read a; echo x >> %s; runs=$(wc -l < %s); %s`, count, count, test.command)
			expect(t, open(t, resolve.ExecConfig{Mode: exec.ModePerRecord, Command: command}), []string{"7"}, []string{test.want})
			data, err := os.ReadFile(count)
			if err != nil || strings.Count(string(data), "x") != test.runs {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

// An endless answer does not exhaust memory.
func TestAnswerOverTheLimit(t *testing.T) {
	endless := `read a; exec tr '\0' x < /dev/zero`
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch, exec.ModePerRecord} {
		t.Run(mode, func(t *testing.T) {
			var before, after runtime.MemStats
			debug.FreeOSMemory()
			runtime.ReadMemStats(&before)
			k := open(t, resolve.ExecConfig{Mode: mode, Command: endless, MaxLine: 1 << 20})
			list, err := call(t, k, "1")
			if mode == exec.ModePerRecord {
				if len(list) != 1 || !strings.Contains(list[0], "more than 1048576 bytes (max-record-bytes)") {
					t.Errorf("%q, %v", list, err)
				}
			} else if fault.KindOf(err) != fault.Batch || !strings.Contains(err.Error(), "more than 1048576 bytes (max-record-bytes)") {
				t.Errorf("%s: %v", fault.KindOf(err), err)
			}
			runtime.ReadMemStats(&after)
			if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 64<<20 {
				t.Errorf("%d bytes were taken", grown)
			}
		})
	}
	// The limit applies to one line, without its line ending.
	line := strings.Repeat("x", 1000)
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch, exec.ModePerRecord} {
		expect(t, open(t, resolve.ExecConfig{Mode: mode, Command: `sed -u 's/$/\r/'`, MaxLine: 1000}), []string{line, line}, []string{line, line})
		list, err := call(t, open(t, resolve.ExecConfig{Mode: mode, Command: `sed -u 's/^b/bb/'`, MaxLine: 1000}), "b"+line[1:])
		if err == nil && !strings.Contains(fmt.Sprint(list), "more than 1000 bytes") {
			t.Errorf("%s: %q", mode, list)
		}
	}
}

// A program that closes or cuts off its output is judged by what it has answered.
func TestOddEndsOfOutput(t *testing.T) {
	for name, test := range map[string]struct {
		command, mode string
		want          []string // nil if the batch fails
		says          string
	}{
		"NUL":                      {`tr 3 '\0' | cat`, exec.ModeBatch, []string{"1", "2", "\x00"}, ""},
		"NUL, stream":              {`while read a; do printf '%s\0\n' $a; done`, exec.ModeStream, []string{"1\x00", "2\x00", "3\x00"}, ""},
		"closed early":             {`exec 3<&0; read a; echo $a; exec 1>&-; cat <&3 >/dev/null`, exec.ModeStream, nil, "after 1 of 3 lines: exit status 0"},
		"closed early, batch":      {`read a; echo $a; exec 1>&-; cat >/dev/null`, exec.ModeBatch, nil, "wrote 1 line for 3 records"},
		"half a line":              {`read a; echo $a; read a; printf 2; exit 0`, exec.ModeStream, nil, "after 1 of 3 lines and a partial one: exit status 0"},
		"half a line, batch":       {`cat >/dev/null; printf '1\n2\n3'`, exec.ModeBatch, []string{"1", "2", "3"}, ""},
		"half a line, killed":      {`cat >/dev/null; printf '1\n2\n3'; kill -9 $$`, exec.ModeBatch, nil, "killed by SIGKILL"},
		"exits after its answers":  {`head -n 3`, exec.ModeStream, []string{"1", "2", "3"}, ""},
		"killed after its answers": {`head -n 3; kill -9 $$`, exec.ModeStream, []string{"1", "2", "3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := open(t, resolve.ExecConfig{Mode: test.mode, Command: test.command})
			if test.want != nil {
				expect(t, k, []string{"1", "2", "3"}, test.want)
				return
			}
			if got, err := call(t, k, "1", "2", "3"); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
