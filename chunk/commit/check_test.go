package commit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// rotten is a killed job with three durable segments, in one file or in parts of one
// segment each.
func rotten(t *testing.T, partBytes int64) (*job, Options, State) {
	t.Helper()
	j := newJob(t)
	options := Options{Path: j.out, Errors: j.err, WorkDir: j.work(), PartBytes: partBytes, Journal: j.journal(t)}
	if partBytes > 0 {
		options.Path = filepath.Join(j.dir, "out") + "/"
	}
	o, err := Create(options)
	chunktest.Must(t, err)
	for first := int64(0); first < 18; first += 6 {
		chunktest.Must(t, o.Commit(j.segment(t, first, 6, true)))
	}
	o.Abandon()
	var entries []Entry
	options.Journal, entries, err = OpenJournal(options.Journal.path)
	chunktest.Must(t, err)
	t.Cleanup(func() { options.Journal.Close() })
	state, err := Replay(entries)
	chunktest.Must(t, err)
	return j, options, state
}

// TestDamagedOutputIsFound: a flipped bit anywhere in the durable output is found, and
// everything before its segment is kept.
func TestDamagedOutputIsFound(t *testing.T) {
	for _, partBytes := range []int64{0, 1} {
		_, options, state := rotten(t, partBytes)
		for kind, files := range held(state, options) {
			at, segment := int64(0), 0
			for _, file := range files {
				data, err := os.ReadFile(file.path)
				chunktest.Must(t, err)
				for i := range data {
					for at >= state.Output[segment].Files[kind].Bytes {
						at, segment = 0, segment+1
					}
					at++
					putByte(t, file.path, i, data[i]^1<<(i%8))
					if good, whole, err := state.CheckOutput(t.Context(), options); err != nil || whole || good != segment {
						t.Fatalf("%s, byte %d: %d segments are good, want %d: %v", file.path, i, good, segment, err)
					}
					putByte(t, file.path, i, data[i])
				}
			}
		}
		if good, whole, err := state.CheckOutput(t.Context(), options); err != nil || !whole || good != 3 {
			t.Errorf("untouched: %d segments are good: %v", good, err)
		}
	}
}

// putByte changes one byte of a file in place: to write all of it anew takes much longer.
func putByte(t *testing.T, path string, at int, value byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	chunktest.Must(t, err)
	_, err = file.WriteAt([]byte{value}, int64(at))
	chunktest.Must(t, err)
	chunktest.Must(t, file.Close())
}

// TestDamagedOutputIsComputedAgain: cut back to its intact segments, a job ends with the
// right output, even if it dies again on the way.
func TestDamagedOutputIsComputedAgain(t *testing.T) {
	for _, partBytes := range []int64{0, 1} {
		for name, damage := range map[string]func(path string) error{
			"flipped": func(path string) error {
				data, err := os.ReadFile(path)
				data[0] ^= 1
				return cmpErr(err, os.WriteFile(path, data, 0o600))
			},
			"cut":     func(path string) error { return os.Truncate(path, 1) },
			"missing": os.Remove,
		} {
			t.Run(fmt.Sprintf("%s, parts of %d", name, partBytes), func(t *testing.T) {
				j, options, state := rotten(t, partBytes)
				files := held(state, options)[chunk.Results]
				chunktest.Must(t, damage(files[len(files)-1].path))
				good, _, err := state.CheckOutput(t.Context(), options)
				chunktest.Must(t, err)
				chunktest.Must(t, state.CutBack(good, options.Journal))
				entries, err := ReadJournal(options.Journal.path)
				chunktest.Must(t, err)
				again, err := Replay(entries)
				chunktest.Must(t, err)
				if diff := cmp.Diff(state.Durable, again.Durable); diff != "" {
					t.Errorf("the journal disagrees: %s", diff)
				}
				o, err := Resume(options, state)
				chunktest.Must(t, err)
				for _, c := range state.Remaining([]chunk.Chunk{{File: "in", Records: 18, Line: 1}}) {
					for first := c.First; first < 18; first += 6 {
						chunktest.Must(t, o.Commit(j.segment(t, first, 6, true)))
					}
				}
				chunktest.Must(t, o.Finish())
				out, errs := expected(0, 18, true)
				got := contents(t, j.dir)
				if partBytes > 0 {
					got["out.jsonl"] = ""
					for i := range 3 {
						got["out.jsonl"] += contents(t, options.Path)[linesPart(i)]
					}
				}
				if got["out.jsonl"] != out || got["err.jsonl"] != errs {
					t.Errorf("output %q, errors %q", got["out.jsonl"], got["err.jsonl"])
				}
			})
		}
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestUnreadableOutputIsKept: an output that cannot be read may be intact.
func TestUnreadableOutputIsKept(t *testing.T) {
	_, options, state := rotten(t, 0)
	path := held(state, options)[chunk.Results][0].path
	chunktest.Must(t, os.Rename(path, path+".aside"))
	chunktest.Must(t, os.Symlink(filepath.Base(path), path)) // ELOOP, even for root
	_, _, err := state.CheckOutput(t.Context(), options)
	chunktest.WantKind(t, err, fault.Storage)
}
