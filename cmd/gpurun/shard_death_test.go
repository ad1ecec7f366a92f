package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/progress"
)

// sharedFolder is a folder that processes share, with an input and a slow kernel in it.
type sharedFolder struct {
	t    *testing.T
	path string
	want string
	kind outputKind
}

// outputKind is a kind of output that processes write together.
type outputKind struct {
	output string
	more   []string // arguments
	// lines returns the lines of the results, decoded.
	lines func(d sharedFolder) string
}

// outputKinds are the kinds of outputs, which the merge makes in different ways.
var outputKinds = map[string]outputKind{
	"lines": {output: "out.jsonl", lines: func(d sharedFolder) string { return d.read("out.jsonl") }},
	"table": {output: "out.parquet", lines: sharedFolder.decodeTable},
	"parts": {output: "out.parquet/", lines: sharedFolder.decodeTable},
	"array": {output: "out.jsonl", more: []string{"--column", "id=id.npy"}, lines: sharedFolder.decodeArray},
}

// decodeTable returns the rows of a table as lines.
func (d sharedFolder) decodeTable() string {
	d.t.Helper()
	cmd, stderr := d.command(nil, "run", "-k", "echo", d.kind.output, "-o", "decoded.jsonl", "--columns", "id", "--force")
	start(d.t, cmd)
	ends(d.t, cmd, stderr, 0)
	return d.read("decoded.jsonl")
}

// decodeArray returns the values of the array in the lines to which they belong.
func (d sharedFolder) decodeArray() string {
	d.t.Helper()
	data := d.read("id.npy")
	if len(data) < npy.HeaderBytes || !strings.Contains(data[:npy.HeaderBytes], "'<i8'") || strings.Trim(d.read("out.jsonl"), "{}\n") != "" {
		d.t.Fatalf("%.200q", data)
	}
	var text strings.Builder
	for rest := []byte(data[npy.HeaderBytes:]); len(rest) >= 8; rest = rest[8:] {
		fmt.Fprintf(&text, "{\"id\":%d}\n", binary.LittleEndian.Uint64(rest))
	}
	if rows := fmt.Sprintf("(%d,)", strings.Count(text.String(), "\n")); !strings.Contains(data[:npy.HeaderBytes], rows) || len(d.read("id.mask.npy")) != npy.HeaderBytes+strings.Count(text.String(), "\n") {
		d.t.Errorf("the header does not say %s: %s", rows, data[:npy.HeaderBytes])
	}
	return text.String()
}

func (d sharedFolder) read(name string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.join(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

func newSharedFolder(t *testing.T, records int) sharedFolder {
	t.Helper()
	d := sharedFolder{t: t, path: t.TempDir(), kind: outputKinds["lines"]}
	var lines strings.Builder
	for i := range records {
		fmt.Fprintf(&lines, "{\"id\":%d}\n", i)
	}
	d.want = lines.String()
	kernel := "#!/bin/sh\nwhile read -r line; do sleep ${SECONDS_PER_RECORD:-0.01}; printf '%s\\n' \"$line\"; done\n"
	for name, text := range map[string]string{"in.jsonl": d.want, "kernel": kernel} {
		if err := os.WriteFile(d.join(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program, d.join("gpurun")); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d sharedFolder) join(name string) string { return filepath.Join(d.path, name) }

// command returns gpurun as a separate process.
func (d sharedFolder) command(env []string, args ...string) (*exec.Cmd, said) {
	d.t.Helper()
	cmd := exec.Command(d.join("gpurun"), args...)
	cmd.Dir = d.path
	cmd.Env = append(os.Environ(), append(env, "GPURUN_TEST_COMMAND=1", "GPURUN_CLAIM_AFTER=1200ms", "GPURUN_GPUS=cpu:1", "GPURUN_CHUNKS_PER_GPU=10", "GPURUN_BATCH_SIZE=2")...)
	stderr, err := os.CreateTemp(d.path, "stderr-")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { stderr.Close() })
	cmd.Stderr = stderr
	return cmd, said(stderr.Name())
}

// shard returns a process that computes a shard of the job.
func (d sharedFolder) shard(shard string, env []string, more ...string) (*exec.Cmd, said) {
	args := slices.Concat([]string{"run", "--shard", shard, "-k", "exec:./kernel", "in.jsonl", "-o", d.kind.output}, d.kind.more, more)
	return d.command(env, args...)
}

// check compares the merged output.
func (d sharedFolder) check() {
	d.t.Helper()
	if lines := d.kind.lines(d); lines != d.want {
		d.t.Errorf("the output is different:\n%.500s", lines)
	}
}

// merge merges the shards and compares the output.
func (d sharedFolder) merge() {
	d.t.Helper()
	cmd, stderr := d.command(nil, "submit", "merge", "--claim-after", "1s", d.kind.output)
	start(d.t, cmd)
	ends(d.t, cmd, stderr, 0)
	d.check()
}

// shardPoints are where a process that computes or merges shards is killed, shortPoints those of a short
// test, for each kind of output.
var shortPoints = map[string][]string{
	"lines": {"shard-computed", "merge-written"}, "table": {"appended:6", "merge-copied"}, "parts": {"layout-agreed"}, "array": {"appended:6", "merge-written:2"},
}
var shardPoints = []string{
	"shard-computed", "merge-written", "layout-agreed", "unit-appended", "array-renamed",
	"shard-claimed", "beat:2", "appended:3", "durable", "complete", "renamed", "clearing", "shard-result", "shard-committed", "merge-copied", "combining", "merge-described", "merge-named",
}

// TestShardDeath: kill -9 at any point; the next process continues from there, and the
// output is that of one machine.
func TestShardDeath(t *testing.T) {
	for name, kind := range outputKinds {
		points := shortPoints[name]
		if os.Getenv("GPURUN_TEST_ALL") != "" {
			points = slices.DeleteFunc(slices.Concat(points, shardPoints), func(point string) bool { return slices.Contains(neverIn[name], point) })
		}
		for _, point := range points {
			t.Run(name+" "+point, func(t *testing.T) {
				t.Parallel()
				d := newSharedFolder(t, 60)
				d.kind = kind
				cmd, stderr := d.shard("0/2", []string{crash.Variable + "=" + point}, "--merge")
				start(t, cmd)
				ends(t, cmd, stderr, -1)
				if signal := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); signal != syscall.SIGKILL {
					t.Fatalf("it was not killed at %s: %s\n%s", point, cmd.ProcessState, stderr)
				}
				cmd, stderr = d.shard("1/2", nil, "--merge")
				start(t, cmd)
				ends(t, cmd, stderr, 0)
				d.check()
				report, stderr := d.command(nil, "report", "--verify", kind.output)
				start(t, report)
				ends(t, report, stderr, 0)
			})
		}
	}
}

// neverIn are the points that a kind of output does not pass.
var neverIn = map[string][]string{
	"lines": {"layout-agreed", "array-renamed"}, "table": {"array-renamed", "durable"}, "array": {"durable"},
	"parts": {"array-renamed", "durable", "merge-written", "merge-copied"},
}

// TestShardAdoptedDeath: the process that continues the work of a killed one is killed, too.
func TestShardAdoptedDeath(t *testing.T) {
	if os.Getenv("GPURUN_TEST_ALL") == "" {
		t.Skip("make test-all runs it")
	}
	for name, kind := range outputKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newSharedFolder(t, 60)
			d.kind = kind
			for _, point := range []string{"appended:3", "adopted", "appended:2"} {
				cmd, stderr := d.shard("0/1", []string{crash.Variable + "=" + point})
				start(t, cmd)
				ends(t, cmd, stderr, -1)
			}
			cmd, stderr := d.shard("0/1", nil)
			start(t, cmd)
			ends(t, cmd, stderr, 0)
			if !strings.Contains(stderr.String(), "resuming from an earlier attempt") {
				t.Errorf("it started over:\n%s", stderr)
			}
			d.merge()
		})
	}
}

// TestShardAnswers: an attempt is killed whose answers are all behind a slow record, so that
// nothing is committed. Its answers are counted, and the next attempt sends no request again.
func TestShardAnswers(t *testing.T) {
	d := newSharedFolder(t, 20)
	var asked atomic.Int64
	var gone atomic.Bool
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			asked.Add(1)
		}
		if strings.Contains(string(body), "record 0.") {
			select {
			case <-release:
			case <-r.Context().Done():
				gone.Store(true)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"yes"}}]}`)
	}))
	t.Cleanup(server.Close)
	config := `{"model":"m","prompt":"record {id}.","output":"answer","concurrency":4}`
	run := func() (*exec.Cmd, said) {
		return d.command(nil, "run", "--shard", "0/2", "--no-claim", "-k", "openai:"+server.URL+"/v1", "--kernel-config", config, "--chunks-per-gpu", "1", "in.jsonl", "-o", "out.jsonl")
	}
	killed, _ := run()
	start(t, killed)
	shared := func() cluster.Overview {
		r, err := cluster.Open(d.join("out.jsonl"))
		if err != nil {
			return cluster.Overview{}
		}
		o, _ := r.Watch(time.Hour).Overview(t.Context())
		return o
	}
	waitFor(t, "answers of the shard", func() bool { return shared().Answers == 9 })
	_ = killed.Process.Kill()
	_ = killed.Wait()
	waitFor(t, "the end of its worker, which must not receive the last answer", gone.Load)
	o := shared()
	if o.Done != 0 || o.Reached() != 9 || o.Shards[0].Answers != 9 || o.Shards[1].Answers != 0 {
		t.Errorf("%+v", o)
	}
	var text strings.Builder
	progress.WriteRun(&text, o)
	for _, want := range []string{"; 9 of 20 records", "9 answers of the pending records are logged and are not sent again", " 9/10 "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the status does not say %q:\n%s", want, text.String())
		}
	}
	close(release)
	before := asked.Load()
	cmd, stderr := run()
	start(t, cmd)
	ends(t, cmd, stderr, 0)
	if n := asked.Load() - before; n != 1 {
		t.Errorf("%d requests after %d, not 1", n, before)
	}
	if want := "resuming from an earlier attempt, which has committed 0 records and logged 9 answers"; !strings.Contains(stderr.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, stderr)
	}
}

// TestFrozenShard: a process is frozen, its shard is done by another one, and it wakes up.
// It must notice, and neither damage the output nor report a failure.
func TestFrozenShard(t *testing.T) {
	d := newSharedFolder(t, 100)
	frozen, said := d.shard("0/2", nil, "--no-claim")
	start(t, frozen)
	waitFor(t, "results of the process", func() bool {
		run, err := cluster.Open(d.join("out.jsonl"))
		if err != nil {
			return false
		}
		shards, err := run.Watch(time.Hour).Shards(t.Context())
		return err == nil && shards[0].State == cluster.Running && shards[0].Done > 0
	})
	if err := frozen.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other, stderr := d.shard("1/2", nil)
	start(t, other)
	ends(t, other, stderr, 0)
	if !strings.Contains(stderr.String(), "claimed shard 0, which was lost") {
		t.Errorf("it did not claim the frozen shard:\n%s", stderr)
	}
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ends(t, frozen, said, 0)
	if !strings.Contains(said.String(), "already committed by another attempt") {
		t.Errorf("the frozen process says:\n%s", said)
	}
	d.merge()
}

// TestCopiedShard: a process that has nothing else to do computes the shard of a slow one,
// from what that one has committed. The slow one gives up.
func TestCopiedShard(t *testing.T) {
	d := newSharedFolder(t, 60)
	slow, said := d.shard("0/2", []string{"SECONDS_PER_RECORD=0.6"}, "--no-claim")
	start(t, slow)
	waitFor(t, "results of the slow process", func() bool {
		run, err := cluster.Open(d.join("out.jsonl"))
		if err != nil {
			return false
		}
		shards, err := run.Watch(time.Hour).Shards(t.Context())
		return err == nil && shards[0].Rate > 0 && shards[0].Done > 5 // a chunk of 4 is committed
	})
	quick, stderr := d.shard("1/2", nil)
	start(t, quick)
	ends(t, quick, stderr, 0)
	for _, text := range []string{"computing a copy of shard 0", "resuming from an earlier attempt", "computed 2 shards: 0,1; all 2 are done"} {
		if !strings.Contains(stderr.String(), text) {
			t.Errorf("it does not say %q:\n%s", text, stderr)
		}
	}
	ends(t, slow, said, 0)
	if !strings.Contains(said.String(), "already committed by another attempt") {
		t.Errorf("the slow process says:\n%s", said)
	}
	d.merge()
}

// waitFor waits until something is the case.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

// TestStoppedShard: a process that is asked to stop leaves its shard to others at once.
func TestStoppedShard(t *testing.T) {
	d := newSharedFolder(t, 100)
	cmd, stderr := d.shard("0/1", nil)
	start(t, cmd)
	waitFor(t, "results", func() bool {
		paths, _ := filepath.Glob(d.join("out.jsonl.shards/attempts/*/out.jsonl.gpurun/output.partial"))
		if len(paths) == 0 {
			return false
		}
		info, err := os.Stat(paths[0])
		return err == nil && info.Size() > 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends(t, cmd, stderr, 143)
	status, said := d.command(nil, "submit", "status", "out.jsonl")
	out, err := status.Output()
	if err != nil || !strings.Contains(string(out), "stopped") {
		t.Errorf("%v\n%s\n%s", err, out, said)
	}
	cmd, stderr = d.shard("0/1", nil)
	start(t, cmd)
	ends(t, cmd, stderr, 0)
	if !strings.Contains(stderr.String(), "resuming from an earlier attempt") {
		t.Errorf("it started over:\n%s", stderr)
	}
	d.merge()
}
