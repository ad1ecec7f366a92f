package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/internal/fault"
)

// newRun creates a run of n shards.
func newRun(t *testing.T, shards int, records int64) *Run {
	t.Helper()
	r, err := Create(Manifest{
		Output: filepath.Join(t.TempDir(), "out.jsonl"), Format: "jsonl", Shards: shards, Records: records,
		Print: []byte(`{"kernel": "echo"}`), Index: []byte(`{"places": [1, 2]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// line is the output of a record.
func line(record int64) string { return fmt.Sprintf("{\"id\":%d}\n", record) }

// all is the output of all records.
func all(records int64) string {
	var b strings.Builder
	for i := range records {
		b.WriteString(line(i))
	}
	return b.String()
}

// compute writes the lines of a shard.
func compute(_ context.Context, a *Attempt) (Result, error) {
	var text strings.Builder
	for i := range a.Records {
		text.WriteString(line(a.First + i))
	}
	if err := os.WriteFile(a.Output(), []byte(text.String()), 0o666); err != nil {
		return Result{}, err
	}
	sum, err := chunk.SumFile(context.Background(), a.Output())
	return Result{Counts: chunk.Counts{Records: a.Records, Succeeded: a.Records}, Output: sum}, err
}

// fast has short intervals.
func fast(shard int, compute func(context.Context, *Attempt) (Result, error)) Work {
	return Work{Shard: shard, LostAfter: 600 * time.Millisecond, Compute: compute}
}

// checkMerged merges a run and compares the output.
func checkMerged(t *testing.T, r *Run) {
	t.Helper()
	m, err := r.Merge(t.Context(), MergeOptions{LostAfter: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(r.Output)
	if err != nil || string(data) != all(r.Records) || m.Counts.Records != r.Records {
		t.Fatalf("%v; merged %d records:\n%.300s", err, m.Counts.Records, data)
	}
}

func TestRangesCoverTheInput(t *testing.T) {
	for shards := 1; shards < 20; shards++ {
		for records := range int64(40) {
			m := Manifest{Shards: shards, Records: records, First: 7}
			next := m.First
			for i := range shards {
				first, n := m.Range(i)
				if first != next || n < 0 {
					t.Fatalf("%d records in %d shards: shard %d is %d records from %d on", records, shards, i, n, first)
				}
				next += n
			}
			if next != m.First+records {
				t.Fatalf("%d records in %d shards end at %d", records, shards, next)
			}
		}
	}
}

func TestArrayText(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "1,2": {1, 2}, "0-2,5,7-9": {0, 1, 2, 5, 7, 8, 9}} {
		if got := ArrayText(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}

// TestOneProcessComputesAll: a process claims what no other computes, and the merge has
// every record once.
func TestOneProcessComputesAll(t *testing.T) {
	r := newRun(t, 7, 50)
	outcome, err := r.Work(t.Context(), fast(3, compute))
	if err != nil || !outcome.Complete || len(outcome.Computed) != 7 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	checkMerged(t, r)
	again, err := r.Merge(t.Context(), MergeOptions{})
	if err != nil || !again.Already {
		t.Errorf("merged again: %+v, %v", again, err)
	}
}

func TestNoClaim(t *testing.T) {
	r := newRun(t, 3, 10)
	w := fast(1, compute)
	w.NoClaim = true
	outcome, err := r.Work(t.Context(), w)
	if err != nil || outcome.Complete || fmt.Sprint(outcome.Computed) != "[1]" {
		t.Fatalf("%+v, %v", outcome, err)
	}
	_, err = r.Merge(t.Context(), MergeOptions{})
	var missing *MissingError
	if !errors.As(err, &missing) || ArrayText(Missing(missing.Shards)) != "0,2" {
		t.Errorf("merge: %v", err)
	}
}

// TestManyProcesses: processes that start at the same time compute each shard once.
func TestManyProcesses(t *testing.T) {
	r := newRun(t, 24, 96)
	var mu sync.Mutex
	computed := make(map[int]int)
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			other, err := Open(r.Output)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = other.Work(t.Context(), fast(i, func(ctx context.Context, a *Attempt) (Result, error) {
				mu.Lock()
				computed[a.Shard]++
				mu.Unlock()
				return compute(ctx, a)
			}))
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for shard := range 24 {
		if computed[shard] != 1 {
			t.Errorf("shard %d was computed %d times", shard, computed[shard])
		}
	}
	checkMerged(t, r)
}

// TestFirstCommitWins: two attempts compute one shard at the same time. The one that
// commits second keeps its hands off the first one's output.
func TestFirstCommitWins(t *testing.T) {
	r := newRun(t, 1, 10)
	begun, release := make(chan struct{}), make(chan struct{})
	frozen := make(chan error, 1)
	go func() {
		w := fast(0, func(_ context.Context, a *Attempt) (Result, error) {
			close(begun)
			<-release // frozen: it shows no sign of life either
			return compute(context.Background(), a)
		})
		w.LostAfter = time.Hour
		_, err := r.Work(t.Context(), w)
		frozen <- err
	}()
	<-begun
	asAnotherHost(t, r, key(0), 1)
	outcome, err := r.Work(t.Context(), fast(0, compute))
	if err != nil || fmt.Sprint(outcome.Computed) != "[0]" {
		t.Fatalf("%+v, %v", outcome, err)
	}
	before, err := os.ReadFile(r.commitPath(0))
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-frozen; err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(r.commitPath(0)); err != nil || string(after) != string(before) {
		t.Errorf("the commit has changed: %v\n%s", err, after)
	}
	checkMerged(t, r)
}

// asAnotherHost makes the attempt of a claim look like that of another host.
func asAnotherHost(t *testing.T, r *Run, key string, claim int) {
	t.Helper()
	path := r.claimPath(key, claim)
	var info attemptInfo
	if err := readJSON(path, &info); err != nil {
		t.Fatal(err)
	}
	info.Host, info.Boot = "elsewhere", "another"
	if err := writeJSON(path, info); err != nil {
		t.Fatal(err)
	}
}

// TestLinkResponseLost: a network file system says that the name exists although it has
// just created it, because it repeated the request.
func TestLinkResponseLost(t *testing.T) {
	link = func(own, public string) error {
		if err := os.Link(own, public); err != nil {
			return err
		}
		return &os.LinkError{Op: "link", Old: own, New: public, Err: syscall.EEXIST}
	}
	defer func() { link = os.Link }()
	r := newRun(t, 3, 10)
	outcome, err := r.Work(t.Context(), fast(0, compute))
	if err != nil || len(outcome.Computed) != 3 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	checkMerged(t, r)
}

// TestNoHardLinks: a file system without hard links is refused before any work.
func TestNoHardLinks(t *testing.T) {
	link = func(own, public string) error {
		return &os.LinkError{Op: "link", Old: own, New: public, Err: syscall.EPERM}
	}
	defer func() { link = os.Link }()
	_, err := Create(Manifest{Output: filepath.Join(t.TempDir(), "out.jsonl"), Format: "jsonl", Shards: 2, Records: 2})
	if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), "hard links") {
		t.Fatal(err)
	}
}

// TestStaleHandle: an error of the shared folder stops the attempt; it is not taken for a
// lost race.
func TestStaleHandle(t *testing.T) {
	r := newRun(t, 1, 10)
	link = func(own, public string) error {
		if strings.Contains(public, commitsDir) {
			return &os.LinkError{Op: "link", Old: own, New: public, Err: syscall.ESTALE}
		}
		return os.Link(own, public)
	}
	outcome, err := r.Work(t.Context(), fast(0, compute))
	link = os.Link
	if fault.KindOf(err) != fault.Storage {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	checkMerged(t, r)
}

// TestLostIsJudgedByOwnClock: an attempt whose beats carry the time of a wrong clock is
// alive as long as they change, and lost when they do not.
func TestLostIsJudgedByOwnClock(t *testing.T) {
	r := newRun(t, 1, 10)
	a, err := r.newAttempt(0, key(0), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if won, err := a.claimAfter(0); !won || err != nil {
		t.Fatal(won, err)
	}
	asAnotherHost(t, r, key(0), 1)
	w := r.Watch(200 * time.Millisecond)
	state := func() State {
		t.Helper()
		shards, err := w.Shards(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return shards[0].State
	}
	for i := range 6 { // longer than it takes to be lost
		wrong := beat{Sequence: int64(i + 2), Time: time.Unix(0, 0)}
		if err := replaceJSON(a.join(beatFile), wrong); err != nil {
			t.Fatal(err)
		}
		if got := state(); got != Running {
			t.Fatalf("with a beat of 1970, it is %s", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := replaceJSON(a.join(beatFile), beat{Sequence: 99, Time: time.Now().AddDate(10, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != Running {
		t.Fatalf("with a beat of the future, it is %s", got)
	}
	time.Sleep(250 * time.Millisecond)
	if got := state(); got != Lost {
		t.Fatalf("without a beat, it is %s", got)
	}
}

// TestFailedShards: a shard that fails is tried again by its own task, and at most
// maxFailures times in all by those that claim it.
func TestFailedShards(t *testing.T) {
	r := newRun(t, 2, 10)
	if _, err := r.Work(t.Context(), fast(1, broken)); fault.KindOf(err) != fault.Incompatible {
		t.Fatal(err)
	}
	if _, err := r.Work(t.Context(), fast(0, broken)); fault.KindOf(err) != fault.Incompatible {
		t.Fatal(err)
	}
	outcome, err := r.Work(t.Context(), fast(0, broken))
	if err != nil || outcome.Complete {
		t.Fatalf("a third process has tried it: %+v, %v", outcome, err)
	}
	shards, err := r.Watch(0).Shards(t.Context())
	if err != nil || shards[1].State != Failed || shards[1].Failures != 2 || !strings.Contains(shards[1].Message, "torch") {
		t.Fatalf("%+v, %v", shards[1], err)
	}
	if _, err := r.Work(t.Context(), fast(1, compute)); err != nil {
		t.Fatal(err)
	}
	checkMerged(t, r)
}

// TestMergeRefusesDamage: the merge verifies every byte, and leaves no output.
func TestMergeRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"changed":  func(path string) error { return os.WriteFile(path, []byte("{\"id\":9}\n{\"id\":1}\n"), 0o666) },
		"shorter":  func(path string) error { return os.Truncate(path, 4) },
		"missing":  os.Remove,
		"appended": func(path string) error { return os.WriteFile(path, []byte(line(0)+line(1)+"\n"), 0o666) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, 5, 10)
			if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
				t.Fatal(err)
			}
			result, err := r.result(0)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(r.join(attemptsDir, result.Attempt, "out.jsonl")); err != nil {
				t.Fatal(err)
			}
			_, err = r.Merge(t.Context(), MergeOptions{})
			if e := fault.As(err); e == nil || e.Kind != fault.Conflict || e.Code != fault.BadShard || e.Value != r.commitPath(0) {
				t.Fatal(err)
			}
			if _, err := os.Stat(r.Output); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the output exists: %v", err)
			}
			// As the hint says.
			if err := os.Remove(r.commitPath(0)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
				t.Fatal(err)
			}
			checkMerged(t, r)
		})
	}
}

// TestMergeKeepsForeignOutput: a file that appeared meanwhile is not replaced.
func TestMergeKeepsForeignOutput(t *testing.T) {
	r := newRun(t, 2, 4)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.Output, []byte("mine\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Merge(t.Context(), MergeOptions{}); fault.KindOf(err) != fault.Conflict {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(r.Output); string(data) != "mine\n" {
		t.Fatalf("%s", data)
	}
	if _, err := r.Merge(t.Context(), MergeOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
}

// TestEmptyInput: shards without records are done at once.
func TestEmptyInput(t *testing.T) {
	r := newRun(t, 3, 0)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	checkMerged(t, r)
}

// TestEmptyEncodedOutput: the merge of a run without records is a file that readers of its format
// accept, with its checksum, also if an interrupted merge has left something.
func TestEmptyEncodedOutput(t *testing.T) {
	for _, name := range encode.Names() {
		for _, left := range []string{"none", "", strings.Repeat("x", 1000)} {
			r, err := Create(Manifest{Output: filepath.Join(t.TempDir(), "out."+name), Format: name, Shards: 2, Columns: tableColumns})
			if err != nil {
				t.Fatal(err)
			}
			m := &merge{run: r, MergeOptions: MergeOptions{Progress: func(int64, int64) {}}}
			if left != "none" {
				before, err := r.newAttempt(-1, mergeKey, 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				m.before = before.dir
				if err := os.WriteFile(before.Output(), []byte(left), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if m.attempt, err = r.newAttempt(-1, mergeKey, 0, nil); err != nil {
				t.Fatal(err)
			}
			if err := m.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			sum, err := chunk.SumFile(t.Context(), r.Output)
			if err != nil || sum != m.merged.Sum {
				t.Errorf("%s, %d bytes left: the sum is %v, not %v; %v", name, len(left), m.merged.Sum, sum, err)
			}
			format, err := encode.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(r.Output)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if format.Table {
				fits, err := table.Of(name).Fits(file, sum.Bytes, *columnLayout.Table)
				if rows, bad := table.Of(name).Rows(file, sum.Bytes); err != nil || bad != nil || rows != 0 || !fits {
					t.Errorf("%s, %d bytes left: %d rows, %v %v", name, len(left), rows, err, bad)
				}
			}
			if format.Codec == nil {
				continue
			}
			lines, err := format.Codec.Decode(file)
			if err != nil {
				t.Errorf("%s, %d bytes left: %v", name, len(left), err)
				continue
			}
			if data, err := io.ReadAll(lines); err != nil || len(data) > 0 || sum.Bytes == 0 {
				t.Errorf("%s, %d bytes left: %d bytes hold %q, %v", name, len(left), sum.Bytes, data, err)
			}
			lines.Close()
		}
	}
}

// TestManifestIsChecked: a damaged manifest is refused; a second Create returns the first
// run.
func TestManifestIsChecked(t *testing.T) {
	r := newRun(t, 3, 10)
	again, err := Create(Manifest{Output: r.Output, Format: "jsonl", Shards: 9, Records: 11})
	if err != nil || again.ID != r.ID || again.Shards != 3 {
		t.Fatalf("%+v, %v", again, err)
	}
	path := r.join(manifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), `"shards": 3`, `"shards": 4`, 1)
	if err := os.WriteFile(path, []byte(damaged), 0o666); err != nil || damaged == string(data) {
		t.Fatal(err)
	}
	if _, err := Open(r.Output); fault.KindOf(err) != fault.Conflict {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "other.jsonl")); fault.As(err).Code != fault.NoRun {
		t.Fatal(err)
	}
}

// TestRunFolderIsPrivate: command lines and a kernel's configuration are in it, and folders of
// processes with another umask are closed to others, too.
func TestRunFolderIsPrivate(t *testing.T) {
	r := newRun(t, 2, 4)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(r.Output); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(r.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && entry.Name() != "out.jsonl" { // which becomes the output
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRunFolderOfAnotherUserIsRefused: another user could make this one compute and write
// anything, as in a folder like /tmp, where whoever comes first creates the run folder.
func TestRunFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can give a folder to another user")
	}
	r := newRun(t, 2, 4)
	if err := os.Chown(r.Dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (*Run, error){
		"Open": func() (*Run, error) { return Open(r.Output) },
		"Create": func() (*Run, error) {
			return Create(Manifest{Output: r.Output, Format: "jsonl", Shards: 2, Records: 4})
		},
	} {
		if _, err := open(); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "not to you") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOutputIsNextToTheRunFolder: whatever the manifest says, and wherever the folder is moved.
func TestOutputIsNextToTheRunFolder(t *testing.T) {
	r := newRun(t, 2, 4)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved.jsonl")
	if err := os.Rename(r.Dir, Folder(moved)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Folder(moved), manifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	forged := strings.Replace(string(data), `"format"`, fmt.Sprintf(`"output": %q, "replace": true, "format"`, victim), 1)
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.WriteFile(path, []byte(forged), 0o600)); err != nil {
		t.Fatal(err)
	}
	if r, err = Open(moved); err != nil || r.Output != moved {
		t.Fatal(r, err)
	}
	if _, err := r.Merge(t.Context(), MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if merged, err := os.ReadFile(moved); string(merged) != all(4) {
		t.Errorf("merged %q, %v", merged, err)
	}
	if kept, err := os.ReadFile(victim); string(kept) != "precious" {
		t.Errorf("the other file is %q, %v", kept, err)
	}
}

// TestMergesAtOnce: a second merge leaves while the first is alive. If it takes the first for
// lost, it merges instead, and the first leaves its output as it is.
func TestMergesAtOnce(t *testing.T) {
	r := newRun(t, 4, 40)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	paused, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		m, err := r.Merge(context.Background(), MergeOptions{Force: true, LostAfter: 600 * time.Millisecond, Progress: func(int64, int64) {
			once.Do(func() { close(paused); <-proceed })
		}})
		if err == nil && !m.Already {
			err = errors.New("it does not notice that another process has merged")
		}
		ended <- err
	}()
	<-paused
	if _, err := r.Merge(t.Context(), MergeOptions{LostAfter: 10 * time.Second}); !errors.Is(err, ErrMerging) {
		t.Errorf("while another process merges: %v", err)
	}
	m, err := r.Merge(t.Context(), MergeOptions{LostAfter: time.Nanosecond})
	if err != nil || m.Already {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := os.WriteFile(r.Output, []byte("retried\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(r.Output); string(data) != "retried\n" {
		t.Errorf("the output was replaced: %.100s", data)
	}
	if m, err := r.Merge(t.Context(), MergeOptions{Force: true}); err != nil || !m.Already {
		t.Errorf("merged again: %+v, %v", m, err)
	}
	if _, err := r.Merge(t.Context(), MergeOptions{Force: true, Again: true}); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(r.Output); string(data) != all(40) {
		t.Errorf("%.100s", data)
	}
}

// TestMergeResumes: a merge continues from one that was interrupted, verifies what that one
// has written, and starts over if its process may still be alive.
func TestMergeResumes(t *testing.T) {
	r := newRun(t, 9, 90)
	if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	_, err := r.Merge(ctx, MergeOptions{Progress: func(records, of int64) {
		if records > of/2 {
			once.Do(cancel)
		}
	}})
	if fault.KindOf(err) != fault.Canceled {
		t.Skipf("the merge was faster: %v", err)
	}
	paths, _ := filepath.Glob(r.join(attemptsDir, "merge-*", "out.jsonl"))
	if len(paths) != 1 {
		t.Fatal(paths)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	data[3] = 'X' // what it has written of the first shard is damaged
	if err := os.WriteFile(paths[0], append(data, "more than there is"...), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := r.Merge(t.Context(), MergeOptions{})
	if err != nil || m.Resumed == 0 || m.Resumed > 80 {
		t.Fatalf("%+v, %v", m, err)
	}
	if data, _ := os.ReadFile(r.Output); string(data) != all(90) {
		t.Fatalf("%s", data)
	}
}

// TestStay: a process that stays claims the shard of one that is lost after nothing else was
// left to do, and reports shards that failed too often.
func TestStay(t *testing.T) {
	r := newRun(t, 2, 20)
	lost, err := r.newAttempt(1, key(1), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	lost.info.Host = "elsewhere" // so that its process is not known to be gone
	if err := writeJSON(lost.join(attemptFile), lost.info); err != nil {
		t.Fatal(err)
	}
	if won, err := lost.claimAfter(0); err != nil || !won {
		t.Fatal(won, err)
	}
	stop := lost.live(10*time.Millisecond, func(error) {}, func(string) {})
	work := Work{Shard: 0, LostAfter: 3 * time.Second, Compute: compute}
	if outcome, err := r.Work(t.Context(), work); err != nil || outcome.Complete || len(outcome.Computed) != 1 {
		t.Fatalf("it waits for a live process, or claims its shard: %+v, %v", outcome, err)
	}
	ended := make(chan error, 1)
	work.Stay = func() error { return nil }
	go func() {
		outcome, err := r.Work(context.Background(), work)
		if err == nil && (!outcome.Complete || len(outcome.Computed) != 1) {
			err = fmt.Errorf("%+v", outcome)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it left while another process computes: %v", err)
	case <-time.After(time.Second): // it has seen the other process by now
	}
	limited := work
	limited.Stay = func() error { return fault.New(fault.Stopped, "the time limit is reached") }
	if _, err := r.Work(t.Context(), limited); fault.KindOf(err) != fault.Stopped {
		t.Errorf("it stays although its time is over: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	checkMerged(t, r)

	r = newRun(t, 2, 20)
	for range maxFailures {
		if _, err := r.Work(t.Context(), fast(1, broken)); fault.KindOf(err) != fault.Incompatible {
			t.Fatal(err)
		}
	}
	var failed *MissingError
	if _, err := r.Work(t.Context(), work); !errors.As(err, &failed) || !failed.Failed || err.Error() != "1 of 2 shards failed: 1" {
		t.Errorf("with a failed shard: %v", err)
	}
}

// broken fails on shard 1.
func broken(ctx context.Context, a *Attempt) (Result, error) {
	if a.Shard == 1 {
		return Result{}, fault.New(fault.Incompatible, "no module named torch")
	}
	return compute(ctx, a)
}
