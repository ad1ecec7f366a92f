package commit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// job is an output with a folder for its parts.
type job struct {
	dir, out, err string
	made          int
}

func newJob(t testing.TB) *job {
	dir := t.TempDir()
	chunktest.Must(t, os.MkdirAll(filepath.Join(dir, "work", PartsDir), 0o700))
	return &job{dir: dir, out: filepath.Join(dir, "out.jsonl"), err: filepath.Join(dir, "err.jsonl")}
}

func (j *job) work() string  { return filepath.Join(j.dir, "work") }
func (j *job) parts() string { return filepath.Join(j.work(), PartsDir) }

// journal begins the job's journal.
func (j *job) journal(t testing.TB) *Journal {
	t.Helper()
	journal, err := CreateJournal(filepath.Join(j.work(), "journal"))
	chunktest.Must(t, err)
	t.Cleanup(func() { journal.Close() })
	return journal
}

func (j *job) create(t testing.TB, path, errs string) *Output {
	t.Helper()
	o, err := Create(Options{Path: path, Errors: errs, WorkDir: j.work(), Replace: true})
	chunktest.Must(t, err)
	return o
}

// segment has n records from first: of every three, the second fails and the third is
// dropped.
func (j *job) segment(t testing.TB, first, n int64, apart bool) chunk.Segment {
	t.Helper()
	j.made++
	part := NewPart(PartOptions{
		Path:  filepath.Join(j.parts(), fmt.Sprintf("part-%d", j.made)),
		Chunk: chunk.Chunk{File: "in", First: first, Line: first + 1}, ErrorsApart: apart,
	})
	for i := first; i < first+n; i++ {
		switch i % 3 {
		case 0:
			chunktest.Must(t, part.Write(Outcome{Lines: fmt.Appendf(nil, "%d\n", i)}))
		case 1:
			chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: fmt.Appendf(nil, `{"i":%d}`, i), Index: i, Line: i + 1}, Fault: fault.New(fault.Record, "bad")}))
		case 2:
			chunktest.Must(t, part.Write(Outcome{Dropped: true}))
		}
	}
	segment, err := part.Close(chunk.Chunk{File: "in", First: first + n, Line: first + n + 1})
	chunktest.Must(t, err)
	return segment
}

// expected returns the output of n records from first.
func expected(first, n int64, apart bool) (out, errs string) {
	var o, e strings.Builder
	for i := first; i < first+n; i++ {
		switch i % 3 {
		case 0:
			fmt.Fprintf(&o, "%d\n", i)
		case 1:
			to := &o
			if apart {
				to = &e
			}
			fmt.Fprintf(to, `{"i":%d,"_error":{"kind":"record","message":"bad","line":%d}}`+"\n", i, i+1)
		}
	}
	return o.String(), e.String()
}

// permutations returns the permutations of 0..n-1.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			all = append(all, append(append(append([]int{}, p[:at]...), n-1), p[at:]...))
		}
	}
	return all
}

// TestOutputOrder: segments are written in input order, in whatever order they finish, and
// the final name appears only when everything is complete.
func TestOutputOrder(t *testing.T) {
	const first, each = 4, 5
	for _, apart := range []bool{false, true} {
		for _, order := range permutations(4) {
			j := newJob(t)
			options := Options{Path: j.out, WorkDir: j.work(), First: first}
			if apart {
				options.Errors = j.err
			}
			o, err := Create(options)
			chunktest.Must(t, err)
			come := map[int]bool{}
			for _, i := range order {
				chunktest.Must(t, o.Commit(j.segment(t, first+int64(i)*each, each, apart)))
				for _, path := range []string{j.out, j.err, filepath.Join(j.work(), FailuresFile)} {
					if _, err := os.Stat(path); err == nil {
						t.Fatalf("%s exists before the end", path)
					}
				}
				come[i] = true
				there := 0
				for come[there] {
					there++
				}
				counts, next := o.Appended()
				if counts.Records != int64(there)*each || next != first+counts.Records {
					t.Errorf("order %v: %d records up to %d after segment %d", order, counts.Records, next, i)
				}
				if counts.Records != counts.Succeeded+counts.Failed+counts.Dropped {
					t.Errorf("counts do not add up: %+v", counts)
				}
			}
			chunktest.Must(t, o.Finish())
			out, errs := expected(first, 4*each, apart)
			all := contents(t, j.work())
			if strings.Count(all[FailuresFile], "\n") != 7 || len(all) != 1 || len(chunktest.Files(t, j.parts())) > 0 {
				t.Fatalf("job folder: %v, parts %v", all, chunktest.Files(t, j.parts()))
			}
			chunktest.Must(t, os.RemoveAll(j.work()))
			want := map[string]string{"out.jsonl": out}
			if apart {
				want["err.jsonl"] = errs
			}
			if diff := cmp.Diff(want, contents(t, j.dir)); diff != "" {
				t.Errorf("order %v: %s", order, diff)
			}
		}
	}
}

func TestOutputEmpty(t *testing.T) {
	j := newJob(t)
	chunktest.Must(t, j.create(t, j.out, j.err).Finish())
	chunktest.Must(t, os.RemoveAll(j.work()))
	if diff := cmp.Diff(map[string]string{"out.jsonl": "", "err.jsonl": ""}, contents(t, j.dir)); diff != "" {
		t.Error(diff)
	}
}

func TestOutputAbandon(t *testing.T) {
	j := newJob(t)
	chunktest.Write(t, j.out, []byte("old"))
	o := j.create(t, j.out, j.err)
	chunktest.Must(t, o.Commit(j.segment(t, 0, 5, true)))
	o.Abandon()
	o.Abandon()
	chunktest.Must(t, os.RemoveAll(j.work()))
	if diff := cmp.Diff(map[string]string{"out.jsonl": "old"}, contents(t, j.dir)); diff != "" {
		t.Error(diff)
	}
}

// TestOutputReplaces: an existing output stays until the new one is complete.
func TestOutputReplaces(t *testing.T) {
	j := newJob(t)
	chunktest.Write(t, j.out, []byte("old"))
	o := j.create(t, j.out, "")
	chunktest.Must(t, o.Commit(j.segment(t, 0, 1, false)))
	if got := contents(t, j.work())["output.partial"]; got != "0\n" {
		t.Errorf("aside: %q", got)
	}
	chunktest.Must(t, o.Finish())
	if got, _ := os.ReadFile(j.out); string(got) != "0\n" {
		t.Errorf("output %q", got)
	}
}

// TestOutputSymlink: the target of a link is replaced, not the link.
func TestOutputSymlink(t *testing.T) {
	j := newJob(t)
	real := chunktest.Write(t, filepath.Join(j.dir, "real.jsonl"), []byte("old"))
	chunktest.Must(t, os.Symlink("real.jsonl", j.out))
	o := j.create(t, j.out, "")
	chunktest.Must(t, o.Commit(j.segment(t, 0, 1, false)))
	chunktest.Must(t, o.Finish())
	if info, err := os.Lstat(j.out); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if got, _ := os.ReadFile(real); string(got) != "0\n" {
		t.Errorf("output %q", got)
	}
}

// TestOutputSymlinkToNothing: the target of a dangling link is created.
func TestOutputSymlinkToNothing(t *testing.T) {
	j := newJob(t)
	chunktest.Must(t, os.Symlink("hop.jsonl", j.out))
	chunktest.Must(t, os.Symlink("real.jsonl", filepath.Join(j.dir, "hop.jsonl")))
	o := j.create(t, j.out, "")
	chunktest.Must(t, o.Commit(j.segment(t, 0, 1, false)))
	chunktest.Must(t, o.Finish())
	if info, err := os.Lstat(j.out); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if got, _ := os.ReadFile(filepath.Join(j.dir, "real.jsonl")); string(got) != "0\n" {
		t.Errorf("output %q", got)
	}
}

// TestOutputOtherDisk: the job folder need not be on the output's file system.
func TestOutputOtherDisk(t *testing.T) {
	j := newJob(t)
	other := chunktest.TinyDisk(t)
	path := filepath.Join(other, "out.jsonl")
	chunktest.Write(t, path, []byte("old"))
	o := j.create(t, path, "")
	chunktest.Must(t, o.Commit(j.segment(t, 0, 1, false)))
	if diff := cmp.Diff(map[string]string{"out.jsonl": "old"}, contents(t, other)); diff != "" {
		t.Error(diff)
	}
	chunktest.Must(t, o.Finish())
	if diff := cmp.Diff(map[string]string{"out.jsonl": "0\n"}, contents(t, other)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{FailuresFile: ""}, contents(t, j.work())); diff != "" {
		t.Errorf("job folder: %s", diff)
	}
	if got := chunktest.Files(t, j.parts()); len(got) > 0 {
		t.Errorf("parts left: %v", got)
	}
}

// TestOutputOtherDiskFull: if that file system is full, the computed results are kept.
func TestOutputOtherDiskFull(t *testing.T) {
	j := newJob(t)
	other := chunktest.TinyDisk(t)
	path := filepath.Join(other, "out.jsonl")
	chunktest.Write(t, path, []byte("old"))
	o := j.create(t, path, "")
	chunktest.Must(t, o.Commit(j.segment(t, 0, 30000, false)))
	chunktest.WantKind(t, o.Finish(), fault.Storage)
	if diff := cmp.Diff(map[string]string{"out.jsonl": "old"}, contents(t, other)); diff != "" {
		t.Error(diff)
	}
	want, _ := expected(0, 30000, false)
	if got := contents(t, j.work())["output.partial"]; got != want {
		t.Errorf("%d bytes are left of %d", len(got), len(want))
	}
}

// TestStreamLeavesNoParts: an output to a stream removes its parts when they are appended, with
// the logs of their answers, whatever its format is.
func TestStreamLeavesNoParts(t *testing.T) {
	for _, format := range []string{"jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow"} {
		j := newRowJob(t, format, 0)
		options := j.options
		options.Path, options.Stdout, options.Arrays, options.Layout = "-", io.Discard, nil, nil
		segment := func(first int64) chunk.Segment { return j.job.segment(t, first, 6, true) }
		if options.Format.Table {
			options.Layout = columns.NewShared(j.spec, &j.layout)
			segment = func(first int64) chunk.Segment { return j.segment(t, first, 6, false) }
		}
		o, err := Create(options)
		chunktest.Must(t, err)
		for first := int64(0); first < 18; first += 6 {
			s := segment(first)
			chunktest.Write(t, filepath.Join(j.parts(), s.Part+EarlySuffix), []byte("answers"))
			chunktest.Must(t, o.Commit(s))
		}
		chunktest.Must(t, o.Finish())
		entries, err := os.ReadDir(j.parts())
		chunktest.Must(t, err)
		for _, entry := range entries {
			t.Errorf("%s: %s remains", format, entry.Name())
		}
	}
}

func TestOutputStdout(t *testing.T) {
	j := newJob(t)
	var stdout bytes.Buffer
	o, err := Create(Options{Path: "-", Errors: j.err, WorkDir: j.work(), Stdout: &stdout})
	chunktest.Must(t, err)
	chunktest.Must(t, o.Commit(j.segment(t, 0, 6, true)))
	chunktest.Must(t, o.Finish())
	out, errs := expected(0, 6, true)
	got, _ := os.ReadFile(j.err)
	if stdout.String() != out || string(got) != errs {
		t.Errorf("stdout %q, errors %q", stdout.String(), got)
	}
}

// TestOutputDirect: a device or a pipe is written to, not replaced.
func TestOutputDirect(t *testing.T) {
	t.Run("null", func(t *testing.T) {
		j := newJob(t)
		o := j.create(t, "/dev/null", "/dev/null")
		chunktest.Must(t, o.Commit(j.segment(t, 0, 6, true)))
		chunktest.Must(t, o.Finish())
		if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Fatalf("/dev/null is %v, %v", info, err)
		}
	})
	t.Run("pipe", func(t *testing.T) {
		j := newJob(t)
		chunktest.Must(t, syscall.Mkfifo(j.out, 0o600))
		got := make(chan string, 1)
		go func() {
			data, _ := os.ReadFile(j.out)
			got <- string(data)
		}()
		o := j.create(t, j.out, "")
		chunktest.Must(t, o.Commit(j.segment(t, 3, 3, false)))
		chunktest.Must(t, o.Commit(j.segment(t, 0, 3, false)))
		chunktest.Must(t, o.Finish())
		if want, _ := expected(0, 6, false); <-got != want {
			t.Error("the pipe did not get what was committed")
		}
		if info, err := os.Stat(j.out); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			t.Errorf("the pipe is %v, %v", info, err)
		}
	})
}

// TestOutputPipeCloses: the reader closes the pipe.
func TestOutputPipeCloses(t *testing.T) {
	j := newJob(t)
	r, w := io.Pipe()
	r.Close()
	o, err := Create(Options{Path: "-", WorkDir: j.work(), Stdout: w})
	chunktest.Must(t, err)
	defer o.Abandon()
	chunktest.WantKind(t, o.Commit(j.segment(t, 0, 3, false)), fault.Storage)
}

func TestOutputFull(t *testing.T) {
	for name, create := range map[string]func(t *testing.T, j *job) *Output{
		"output": func(t *testing.T, j *job) *Output { return j.create(t, "/dev/full", "") },
		"errors": func(t *testing.T, j *job) *Output { return j.create(t, j.out, "/dev/full") },
		"disk": func(t *testing.T, j *job) *Output {
			work := chunktest.TinyDisk(t) // the parts exist already, on another disk
			chunktest.Must(t, os.Symlink(j.parts(), filepath.Join(work, PartsDir)))
			o, err := Create(Options{Path: j.out, WorkDir: work})
			chunktest.Must(t, err)
			return o
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			o := create(t, j)
			err := o.Commit(j.segment(t, 0, 30000, name == "errors"))
			chunktest.WantKind(t, err, fault.Storage)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("error %v does not say that the disk is full", err)
			}
			if counts, next := o.Appended(); counts.Records != 0 || next != 0 {
				t.Errorf("counted although it failed: %+v, %d", counts, next)
			}
			o.Abandon()
			if _, err := os.Stat(j.out); err == nil {
				t.Error("the output has its name")
			}
		})
	}
}

func TestCreateOutputFails(t *testing.T) {
	j := newJob(t)
	for name, options := range map[string]Options{
		"no job folder": {Path: j.out, WorkDir: filepath.Join(j.dir, "none")},
		"a folder":      {Path: j.dir, WorkDir: j.work()},
		"errors":        {Path: j.out, Errors: j.dir, WorkDir: j.work()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Create(options)
			chunktest.WantKind(t, err, fault.Storage)
		})
	}
}

// TestOutputPartGone: a missing part is an error, not a gap.
func TestOutputPartGone(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for i, suffix := range suffixes[:chunk.PartFiles] {
			if i == chunk.FailedRecords && !apart {
				continue
			}
			j := newJob(t)
			errs := ""
			if apart {
				errs = j.err
			}
			o := j.create(t, j.out, errs)
			segment := j.segment(t, 0, 6, apart)
			chunktest.Must(t, os.Remove(filepath.Join(j.parts(), segment.Part+suffix)))
			chunktest.WantKind(t, o.Commit(segment), fault.Storage)
			o.Abandon()
		}
	}
}

// TestOutputEmptySegment: a segment without records does not displace another.
func TestOutputEmptySegment(t *testing.T) {
	for name, order := range map[string][]int64{"after": {3, 0}, "before": {0, 3}} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			o := j.create(t, j.out, "")
			for _, n := range order { // both begin at record 3
				chunktest.Must(t, o.Commit(j.segment(t, 3, n, false)))
			}
			chunktest.Must(t, o.Commit(j.segment(t, 0, 3, false)))
			if counts, _ := o.Appended(); counts.Records != 6 {
				t.Errorf("%d records came out, want 6", counts.Records)
			}
			chunktest.Must(t, o.Finish())
		})
	}
}

// TestOutputFinishFails: an output that cannot be renamed keeps its temporary name, and it
// is not renamed before the files that belong to it.
func TestOutputFinishFails(t *testing.T) {
	for name, errs := range map[string]bool{"output": false, "errors": true} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			gone := filepath.Join(j.dir, "gone")
			chunktest.Must(t, os.Mkdir(gone, 0o700))
			out, err := j.out, j.err
			if errs {
				err = filepath.Join(gone, "err.jsonl")
			} else {
				out = filepath.Join(gone, "out.jsonl")
			}
			o := j.create(t, out, err)
			chunktest.Must(t, o.Commit(j.segment(t, 0, 6, true)))
			chunktest.Must(t, os.Remove(gone))
			chunktest.WantKind(t, o.Finish(), fault.Storage)
			o.Abandon()
			want, _ := expected(0, 6, true)
			if got := contents(t, j.work())["output.partial"]; got != want {
				t.Errorf("aside is %q, want %q", got, want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("the output has its name")
			}
		})
	}
}

// TestOutputGap: an output with a gap does not get its final name.
func TestOutputGap(t *testing.T) {
	j := newJob(t)
	o := j.create(t, j.out, "")
	chunktest.Must(t, o.Commit(j.segment(t, 3, 3, false)))
	chunktest.WantKind(t, o.Finish(), fault.Unknown)
	if _, err := os.Stat(j.out); err == nil {
		t.Error("the output has its name")
	}
}
