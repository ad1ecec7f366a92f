package commit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// outcome is the files that a job leaves.
func outcome(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := contents(t, dir)
	for name, data := range contents(t, filepath.Join(dir, "out")) {
		all["out/"+name] = data
	}
	failures, err := os.ReadFile(filepath.Join(dir, "work", FailuresFile))
	chunktest.Must(t, err)
	all[FailuresFile] = string(failures)
	return all
}

// newTrial splits a random input at random and computes the expected output.
func newTrial(t testing.TB, r *rand.Rand) (*trial, map[string]string) {
	data := chunktest.Input(r, 60)
	path := chunktest.Temporary(t, data)
	options := cutOptions{Chunks: 1 + r.IntN(5), BatchSize: 1 + r.IntN(4), Split: []input.Split{input.SplitRecords, input.SplitBytes}[r.IntN(2)]}
	if r.IntN(3) == 0 {
		options.Limits = input.Limits{Offset: r.Int64N(10), Limit: r.Int64N(40)}
	}
	planned := plan(t, path, options)
	tr := &trial{r: r, dir: t.TempDir(), apart: r.IntN(2) == 0, planned: planned, batch: options.BatchSize}
	if r.IntN(2) == 0 {
		tr.parts = 1 + r.Int64N(300)
	}
	if r.IntN(2) == 0 {
		tr.unit = 1 + r.Int64N(300)
		var err error
		tr.format, err = encode.ByName([]string{"jsonl.gz", "jsonl.zst"}[r.IntN(2)])
		chunktest.Must(t, err)
	}
	calm := t.TempDir()
	chunktest.Must(t, tr.undisturbed(calm))
	return tr, outcome(t, calm)
}

// manyPoints makes durable points frequent.
func manyPoints(t testing.TB, bytes int64) {
	b := durableBytes
	t.Cleanup(func() { durableBytes = b })
	durableBytes = bytes
}

// TestResume: however often a job dies, and whatever non-durable data is lost, it ends with
// the bytes of an undisturbed job.
func TestResume(t *testing.T) {
	r := chunktest.Seeded(t)
	rounds := 25
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		manyPoints(t, []int64{50, 500, 256 << 20}[r.IntN(3)])
		tr, want := newTrial(t, r)
		what := fmt.Sprintf("round %d, %d chunks, apart %v, parts of %d, %s", round, len(tr.planned), tr.apart, tr.parts, tr.format.Name)
		chunktest.Must(t, tr.open())
		for crashes := 0; !tr.done; {
			if len(tr.todo) == 0 && (crashes > 5 || r.IntN(2) == 0) {
				if err := tr.output.Finish(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				break
			}
			if len(tr.todo) > 0 && (crashes > 5 || r.IntN(4) > 0) {
				if err := tr.step(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				continue
			}
			crashes++
			end := []func(testing.TB, *trial) string{stop, kill, powerLoss, powerLoss, rot, rot}[r.IntN(6)]
			what += ", " + end(t, tr)
			if err := tr.open(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		tr.journal.Close()
		if diff := cmp.Diff(want, outcome(t, tr.dir)); diff != "" {
			t.Fatalf("%s: %s", what, diff)
		}
		checkCounts(t, tr)
		if tr.parts > 0 {
			checkParts(t, tr)
		}
	}
}

// checkParts checks with simple code that the manifest matches the parts, and that together
// they are the output in one file.
func checkParts(t testing.TB, tr *trial) {
	t.Helper()
	dir := filepath.Join(tr.dir, "out")
	m, err := ReadManifest(dir)
	chunktest.Must(t, err)
	chunktest.Must(t, m.Check(t.Context(), dir))
	whole := *tr
	whole.parts, whole.format = 0, encode.Format{}
	calm := t.TempDir()
	chunktest.Must(t, whole.undisturbed(calm))
	var all []byte
	next := tr.options().First
	for _, p := range m.Parts {
		data, err := os.ReadFile(filepath.Join(dir, p.Name))
		chunktest.Must(t, err)
		data = decoded(t, tr.format, data)
		if tr.format.Encodes() && p.Unencoded != int64(len(data)) {
			t.Errorf("part %+v has %d bytes before encoding", p, len(data))
		}
		all = append(all, data...)
		if p.First != next || p.Lines != int64(bytes.Count(data, newline)) {
			t.Errorf("part %+v begins at record %d and has %d lines", p, next, bytes.Count(data, newline))
		}
		next += p.Records
	}
	if next != tr.options().First+m.Records || string(all) != outcome(t, calm)["out.jsonl"] {
		t.Errorf("the parts are not the output in one file: %+v", m)
	}
	if len(chunktest.Files(t, dir)) != len(m.Parts) {
		t.Errorf("%v in the folder, of %d parts", chunktest.Files(t, dir), len(m.Parts))
	}
}

// checkCounts checks that the counts in the last journal entry add up.
func checkCounts(t testing.TB, tr *trial) {
	t.Helper()
	entries, err := ReadJournal(tr.path("journal"))
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	var total int64
	for _, c := range tr.planned {
		total += c.Records
	}
	counts := state.Durable.Tally
	if !state.Complete || counts.Records != total || counts.Succeeded+counts.Failed+counts.Dropped != total {
		t.Errorf("complete %v with %+v, of %d", state.Complete, counts, total)
	}
	var failed int64
	for _, kind := range counts.Kinds {
		failed += kind.Count
	}
	if failed != counts.Failed {
		t.Errorf("%d failures by kind, %d in all", failed, counts.Failed)
	}
}

// TestResumeRefuses: an output that is shorter than its durable size is not the one that
// was written.
func TestResumeRefuses(t *testing.T) {
	for _, kind := range []int{chunk.Results, chunk.FailedRecords, chunk.Failures} {
		j := newJob(t)
		options := Options{Path: j.out, Errors: j.err, WorkDir: j.work(), Journal: j.journal(t)}
		o, err := Create(options)
		chunktest.Must(t, err)
		chunktest.Must(t, o.Commit(j.segment(t, 0, 6, true)))
		o.Abandon()
		entries, err := ReadJournal(options.Journal.path)
		chunktest.Must(t, err)
		state, err := Replay(entries)
		chunktest.Must(t, err)
		chunktest.Must(t, os.Truncate(filepath.Join(options.WorkDir, Temporary[kind]), state.Durable.Sizes[kind]-1))
		_, err = Resume(options, state)
		chunktest.WantKind(t, err, fault.Conflict)
	}
}

// TestResumeKeepsState: resuming does not change the caller's state.
func TestResumeKeepsState(t *testing.T) {
	j := newJob(t)
	options := Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)}
	o, err := Create(options)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Commit(j.segment(t, 0, 6, false)))
	chunktest.Must(t, o.Checkpoint(true))
	chunktest.Must(t, o.Commit(j.segment(t, 6, 6, false)))
	o.close()
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	o, err = Resume(options, state)
	chunktest.Must(t, err)
	told, _ := o.Appended()
	chunktest.Must(t, o.Commit(j.segment(t, 12, 6, false)))
	o.Abandon()
	if got := state.Durable.Tally.Kinds["record"].Count; got != 2 {
		t.Errorf("the state has %d failures now", got)
	}
	if got := told.Kinds["record"].Count; got != 4 {
		t.Errorf("the returned tally has %d failures now", got)
	}
}

// TestDurableOrder: parts are removed only after the journal records that the output
// contains them, and durable points are made even while many segments that waited for one
// are appended.
func TestDurableOrder(t *testing.T) {
	manyPoints(t, 100)
	j := newJob(t)
	options := Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)}
	o, err := Create(options)
	chunktest.Must(t, err)
	defer o.Abandon()
	for i := int64(9); i > 0; i-- {
		chunktest.Must(t, o.Commit(j.segment(t, i*10, 10, false)))
	}
	if got := len(chunktest.Files(t, j.parts())); got != 18 {
		t.Fatalf("%d files wait", got)
	}
	chunktest.Must(t, o.Commit(j.segment(t, 0, 10, false)))
	chunktest.Must(t, o.awaitPoint())
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	points := 0
	for _, e := range entries {
		if e.Durable != nil {
			points++
		}
	}
	if points < 9 {
		t.Errorf("%d durable points while everything was appended", points)
	}
	if got := chunktest.Files(t, j.parts()); len(got) > 0 {
		t.Errorf("parts left: %v", got)
	}
	// If the journal cannot be written, the parts stay.
	chunktest.Must(t, options.Journal.Close())
	segment := j.segment(t, 100, 10, false)
	chunktest.Must(t, o.appendInOrder(segment))
	chunktest.WantKind(t, o.awaitPoint(), fault.Storage)
	chunktest.WantKind(t, o.Checkpoint(true), fault.Storage)
	if got := chunktest.Files(t, j.parts()); len(got) != 2 {
		t.Errorf("parts left: %v", got)
	}
}

// TestResumeFull: the disk fills up while a segment is appended. The appended half does not
// count, whether or not the journal can still be written.
func TestResumeFull(t *testing.T) {
	for _, where := range []string{"journal elsewhere", "journal too", "errors"} {
		t.Run(where, func(t *testing.T) {
			j := newJob(t)
			tiny := chunktest.TinyDisk(t)
			chunktest.Must(t, os.Symlink(j.parts(), filepath.Join(tiny, PartsDir))) // they exist already
			filler := chunktest.Write(t, filepath.Join(tiny, "filler"), make([]byte, 20<<10))
			options := Options{Path: j.out, WorkDir: tiny, Journal: j.journal(t)}
			apart := where == "errors"
			switch where {
			case "journal too":
				journal, err := CreateJournal(filepath.Join(tiny, "journal"))
				chunktest.Must(t, err)
				defer journal.Close()
				options.Journal = journal
			case "errors":
				options.Errors = j.err
			}
			o, err := Create(options)
			chunktest.Must(t, err)
			const each = 500
			first := int64(0)
			for ; ; first += each {
				if err = o.Commit(j.segment(t, first, each, apart)); err != nil {
					break
				}
			}
			chunktest.WantKind(t, err, fault.Storage)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v does not say that the disk is full", err)
			}
			if first == 0 {
				t.Fatal("nothing fit")
			}
			// With or without space, nothing is appended after half a segment.
			chunktest.Must(t, os.Remove(filler))
			chunktest.WantKind(t, o.Commit(j.segment(t, first+each, each, apart)), fault.Storage)
			if where == "errors" {
				chunktest.WantKind(t, o.Finish(), fault.Storage)
			}
			o.Abandon()

			// There is space again, on another disk.
			roomy := filepath.Join(j.dir, "roomy")
			chunktest.Must(t, os.Mkdir(roomy, 0o700))
			for name, data := range contents(t, tiny) {
				chunktest.Write(t, filepath.Join(roomy, name), []byte(data))
			}
			chunktest.Must(t, os.Symlink(j.parts(), filepath.Join(roomy, PartsDir)))
			path := options.Journal.path
			if where == "journal too" {
				path = filepath.Join(roomy, "journal")
			}
			resumed := options
			resumed.WorkDir = roomy
			var entries []Entry
			resumed.Journal, entries, err = OpenJournal(path)
			chunktest.Must(t, err)
			defer resumed.Journal.Close()
			state, err := Replay(entries)
			chunktest.Must(t, err)
			chunktest.Must(t, state.Verify(j.parts(), resumed.Journal))
			o, err = Resume(resumed, state)
			chunktest.Must(t, err)
			for _, c := range state.Remaining([]chunk.Chunk{{File: "in", Records: first + 2*each, Line: 1}}) {
				chunktest.Must(t, o.Commit(j.segment(t, c.First, c.Records, apart)))
			}
			chunktest.Must(t, o.Finish())
			out, errs := expected(0, first+2*each, apart)
			if got, _ := os.ReadFile(j.out); string(got) != out {
				t.Errorf("%d bytes came out, want %d", len(got), len(out))
			}
			if got, _ := os.ReadFile(j.err); string(got) != errs {
				t.Errorf("%d bytes of errors came out, want %d", len(got), len(errs))
			}
		})
	}
}

// TestAbandonFull: the stop after a failed append does not make the half segment durable,
// but does so for what was complete before it.
func TestAbandonFull(t *testing.T) {
	j := newJob(t)
	tiny := chunktest.TinyDisk(t)
	chunktest.Must(t, os.Symlink(j.parts(), filepath.Join(tiny, PartsDir)))
	options := Options{Path: j.out, WorkDir: tiny, Journal: j.journal(t)}
	o, err := Create(options)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Commit(j.segment(t, 0, 6, false)))
	chunktest.WantKind(t, o.Commit(j.segment(t, 6, 30000, false)), fault.Storage)
	o.Abandon()
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	out, _ := expected(0, 6, false)
	if state.Durable.Next != 6 || state.Durable.Sizes[chunk.Results] != int64(len(out)) {
		t.Errorf("durable is %+v", state.Durable)
	}
	if len(state.Segments) != 1 || state.Segments[0].First != 6 {
		t.Errorf("segments %+v", state.Segments)
	}
}

// TestAbandonAfterFinish: abandoning a job that could not be finished does not mark it
// complete.
func TestAbandonAfterFinish(t *testing.T) {
	for name, damage := range map[string]func(o *Output) error{
		"nothing":        func(*Output) error { return nil },
		"output":         func(o *Output) error { return o.results.target.file.Close() },
		"failures":       func(o *Output) error { return o.targets[chunk.Failures].file.Close() },
		"no place to go": func(o *Output) error { o.options.Path = "/none/out.jsonl"; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			options := Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)}
			o, err := Create(options)
			chunktest.Must(t, err)
			chunktest.Must(t, o.Commit(j.segment(t, 0, 6, false)))
			chunktest.Must(t, damage(o))
			if err := o.Finish(); (err == nil) != (name == "nothing") {
				t.Errorf("Finish: %v", err)
			}
			before := contents(t, j.work())
			parts := chunktest.Files(t, j.parts())
			o.Abandon()
			chunktest.Must(t, o.Checkpoint(true))
			if diff := cmp.Diff(before, contents(t, j.work())); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(parts, chunktest.Files(t, j.parts())); diff != "" {
				t.Error(diff)
			}
			complete := bytes.Contains([]byte(before["journal"]), []byte(`{"complete"`))
			if synced := name == "nothing" || name == "no place to go"; complete != synced {
				t.Errorf("the journal says complete: %v", complete)
			}
		})
	}
}

// finished returns a job that is complete in its journal, with the given number of files
// already renamed.
func finished(t *testing.T, named int, apart bool, prepare func(j *job)) (*job, Options, State) {
	t.Helper()
	j := newJob(t)
	if prepare != nil {
		prepare(j)
	}
	options := Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)}
	if apart {
		options.Errors = j.err
	}
	o, err := Create(options)
	chunktest.Must(t, err)
	chunktest.Must(t, o.Commit(j.segment(t, 3, 3, apart)))
	chunktest.Must(t, o.Commit(j.segment(t, 0, 3, apart)))
	chunktest.Must(t, o.journal(Entry{Complete: &o.landed.durable}))
	o.close()
	for _, f := range options.files()[:named] {
		if f.final != "" {
			chunktest.Must(t, os.Rename(f.temporary, f.final))
		}
	}
	entries, err := ReadJournal(options.Journal.path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	if !state.Complete {
		t.Fatal("it is not complete")
	}
	return j, options, state
}

// TestCompleteOutput: if a job is killed between any two renames, the remaining files are
// renamed; repeating that is safe.
func TestCompleteOutput(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for named := range chunk.PartFiles + 1 {
			j, options, state := finished(t, named, apart, nil)
			for range 2 {
				chunktest.Must(t, Complete(options, state))
				out, errs := expected(0, 6, apart)
				want := map[string]string{"out.jsonl": out}
				if apart {
					want["err.jsonl"] = errs
				}
				if diff := cmp.Diff(want, contents(t, j.dir)); diff != "" {
					t.Errorf("%d named, apart %v: %s", named, apart, diff)
				}
				work := contents(t, j.work())
				if len(work) != 2 || len(work[FailuresFile]) != int(state.Durable.Sizes[chunk.Failures]) {
					t.Errorf("%d named, apart %v: job folder: %v", named, apart, work)
				}
			}
		}
	}
}

// TestCompleteOutputSymlink: the target of the link is replaced, as by Finish.
func TestCompleteOutputSymlink(t *testing.T) {
	j, options, state := finished(t, 1, false, func(j *job) {
		chunktest.Write(t, filepath.Join(j.dir, "real.jsonl"), []byte("old"))
		chunktest.Must(t, os.Symlink("real.jsonl", j.out))
	})
	options.Replace = true
	chunktest.Must(t, Complete(options, state))
	if info, err := os.Lstat(j.out); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	want, _ := expected(0, 6, false)
	if got, _ := os.ReadFile(filepath.Join(j.dir, "real.jsonl")); string(got) != want {
		t.Errorf("output %q", got)
	}
}

// TestCompleteOutputDirect: an output that is written directly has no final name.
func TestCompleteOutputDirect(t *testing.T) {
	_, options, state := finished(t, 0, true, nil)
	for _, path := range []string{"-", "/dev/null"} {
		options.Path = path
		chunktest.Must(t, Complete(options, state))
	}
}

// TestCompleteOutputRefuses: a file that has changed does not get its final name and is not
// mistaken for the output.
func TestCompleteOutputRefuses(t *testing.T) {
	aside := func(j *job) string { return filepath.Join(j.work(), "output.partial") }
	for name, c := range map[string]struct {
		named  int
		damage func(j *job, size int64) error
	}{
		"aside cut":        {0, func(j *job, size int64) error { return os.Truncate(aside(j), size-1) }},
		"aside longer":     {2, func(j *job, size int64) error { return os.Truncate(aside(j), size+1) }},
		"aside missing":    {1, func(j *job, _ int64) error { return os.Remove(aside(j)) }},
		"named cut":        {chunk.PartFiles, func(j *job, size int64) error { return os.Truncate(j.out, size-1) }},
		"named missing":    {chunk.PartFiles, func(j *job, _ int64) error { return os.Remove(j.out) }},
		"failures missing": {chunk.PartFiles, func(j *job, _ int64) error { return os.Remove(filepath.Join(j.work(), FailuresFile)) }},
		"errors missing":   {chunk.PartFiles, func(j *job, _ int64) error { return os.Remove(j.err) }},
		"another of size": {1, func(j *job, size int64) error {
			return errors.Join(os.WriteFile(j.out, make([]byte, size), 0o600), os.Truncate(aside(j), 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j, options, state := finished(t, c.named, true, nil)
			chunktest.Must(t, c.damage(j, state.Durable.Sizes[chunk.Results]))
			chunktest.WantKind(t, Complete(options, state), fault.Conflict)
		})
	}
}
