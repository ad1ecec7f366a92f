package amend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// must returns a value that there must be.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// finishedJob is a job with columns of ten records, of which those with the given numbers
// failed, in parts of two records. Record 9 had failed before.
type finishedJob struct {
	t      *testing.T
	dir    string
	format encode.Format
	layout columns.Layout
	arrays []commit.Array
	Retried
}

func newFinishedJob(t *testing.T, format string, failed ...int) *finishedJob {
	t.Helper()
	j := &finishedJob{t: t, dir: t.TempDir()}
	j.format = must(encode.ByName(format))
	j.layout.Columns = []columns.Column{{Name: "v", Kind: columns.Float32, Width: 2}}
	if j.format.Table {
		j.layout.Table = &parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}, {Name: "v", Type: parquet.Float32, Width: 2, Typed: true}}}
	} else {
		j.arrays = []commit.Array{{Path: filepath.Join(j.dir, "v.npy")}, {Path: filepath.Join(j.dir, "v.mask.npy"), Mask: true}}
	}
	work := filepath.Join(j.dir, "job")
	chunktest.Must(t, os.MkdirAll(filepath.Join(work, commit.PartsDir), 0o777))
	j.Output = filepath.Join(j.dir, "out") + "/"
	options := commit.Options{
		Path: j.Output, PartBytes: 1, Format: j.format, UnitBytes: 1 << 20, Layout: columns.NewShared(new(columns.Spec), &j.layout),
		Arrays: j.arrays, KeepFailed: j.format.Table, WorkDir: work,
	}
	options.Journal = must(commit.CreateJournal(filepath.Join(work, "journal")))
	defer options.Journal.Close()
	out := must(commit.Create(options))
	for first := 0; first < 10; first += 2 {
		part := j.part(filepath.Join(work, commit.PartsDir, fmt.Sprint("p", first)), first, false)
		for id := first; id < first+2; id++ {
			j.compute(part, id, failed)
		}
		chunktest.Must(t, out.Commit(must(part.Close(chunk.Chunk{First: int64(first + 2)}))))
	}
	chunktest.Must(t, out.Finish())
	manifest := must(commit.ReadManifest(j.Output))
	j.Retried = Retried{
		Output: j.Output, Failures: filepath.Join(work, commit.FailuresFile), Parts: manifest.Parts, Format: j.format,
		Failed: filepath.Join(work, "failed"), Again: filepath.Join(work, "again.out"),
		Layout: &j.layout, Arrays: j.arrays, ArraySums: out.ArraySums(), Dir: filepath.Join(work, "next"), Store: commit.StoreOf(j.format),
	}
	if j.format.Table {
		j.Errors, j.KeptApart = filepath.Join(work, commit.KeptFile), true
	}
	return j
}

func (j *finishedJob) part(path string, first int, framed bool) *commit.Part {
	store := commit.StoreOf(j.format)
	if framed {
		store = chunk.StoreFrames
	}
	return commit.NewPart(commit.PartOptions{
		Path: path, Chunk: chunk.Chunk{File: "in", First: int64(first), Line: int64(first) + 1}, Store: store, Rows: true, Step: "k",
	})
}

// compute writes the outcome of a record.
func (j *finishedJob) compute(part *commit.Part, id int, failed []int) {
	j.t.Helper()
	r := input.Record{Data: fmt.Appendf(nil, `{"id":%d}`, id), Index: int64(id), Line: int64(id) + 1}
	if id == 9 {
		r.Data = []byte(`{"id":9,"_error":{"kind":"before"}}`)
		chunktest.Must(j.t, part.Write(commit.Outcome{Record: r, Fault: fault.New(fault.Upstream, "")}))
		return
	}
	for _, bad := range failed {
		if bad == id {
			chunktest.Must(j.t, part.Write(commit.Outcome{Record: r, Fault: fault.New(fault.Record, "no")}))
			return
		}
	}
	var values []byte
	for k := range 2 {
		values, _ = binary.Append(values, binary.LittleEndian, float32(id)+float32(k)/4)
	}
	o := commit.Outcome{Lines: append(r.Data, '\n'), Values: values}
	if j.layout.Table != nil {
		o.Lines = must(j.layout.Table.Rows().Append(nil, r.Data, [][]byte{values}))
		o.Values = columns.AppendEntry(nil, int64(len(o.Lines)), true)
	}
	chunktest.Must(j.t, part.Write(o))
}

// again computes the failed records again; those with the given numbers, counted among them,
// fail again.
func (j *finishedJob) again(ids []int, failed ...int) {
	j.t.Helper()
	count := must(j.CopyFailed(j.Failed))
	if int(count) != len(ids) {
		j.t.Fatalf("%d failed records instead of %d", count, len(ids))
	}
	chunktest.Must(j.t, j.CheckFailed())
	part := j.part(strings.TrimSuffix(j.Again, ".out"), 0, true)
	for n, id := range ids {
		bad := []int{}
		for _, again := range failed {
			if again == n {
				chunktest.Must(j.t, part.Write(commit.Outcome{Record: input.Record{Data: fmt.Appendf(nil, `{"id":%d}`, id), Index: int64(n), Line: int64(n) + 1}, Fault: fault.New(fault.Record, "again")}))
				bad = append(bad, id)
			}
		}
		if len(bad) == 0 {
			j.compute(part, id, nil)
		}
	}
	_ = must(part.Close(chunk.Chunk{}))
}

// files returns the bytes of the results by name: the old ones, or the new ones.
func (j *finishedJob) files(next bool) map[string]string {
	all := make(map[string]string)
	dir := j.Output
	if next {
		dir = filepath.Join(j.Dir, commit.Temporary[chunk.Results])
	}
	for _, p := range j.Parts {
		all[p.Name] = j.read(filepath.Join(dir, p.Name))
	}
	for i, a := range j.arrays {
		path := a.Path
		if next {
			path = filepath.Join(j.Dir, commit.TemporaryArray(i))
		}
		all[filepath.Base(a.Path)] = j.read(path)
	}
	return all
}

func (j *finishedJob) read(path string) string {
	j.t.Helper()
	return string(must(os.ReadFile(path)))
}

var formats = []string{"jsonl", "jsonl.zst", "parquet", "arrow"}

// TestMerge: new results in the place of failed records give what the job would have written,
// and parts in which nothing changes are not written again.
func TestMerge(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			want := newFinishedJob(t, format)
			j := newFinishedJob(t, format, 0, 4, 5)
			j.again([]int{0, 4, 5})
			merged := must(j.Merge())
			if diff := cmp.Diff(want.files(false), j.files(true)); diff != "" {
				t.Error(diff)
			}
			if merged.Tally.Failed != 1 || len(merged.Parts) != len(j.Parts) {
				t.Errorf("%+v", merged)
			}
			for i, p := range merged.Parts {
				if diff := cmp.Diff(want.Parts[i].CRC32C, p.CRC32C); diff != "" || p.Bytes != want.Parts[i].Bytes || p.Lines != 2 {
					t.Errorf("part %d: %+v", i, p)
				}
				old := must(os.Stat(filepath.Join(j.Output, p.Name)))
				new := must(os.Stat(filepath.Join(j.Dir, commit.Temporary[chunk.Results], p.Name)))
				changed := i == 0 || i == 2 || len(j.arrays) > 0 // lines beside arrays are counted
				if os.SameFile(old, new) == changed {
					t.Errorf("part %d: written again: %v", i, !changed)
				}
			}
		})
	}
}

// TestMergeFailsAgain: a record that fails again has its new mark, and its place is noted.
func TestMergeFailsAgain(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			j := newFinishedJob(t, format, 2, 3)
			j.again([]int{2, 3}, 1)
			merged := must(j.Merge())
			failures := j.read(filepath.Join(j.Dir, commit.Temporary[chunk.Failures]))
			if merged.Tally.Failed != 2 || strings.Count(failures, "\n") != 2 || !strings.Contains(failures, `"record":3,"line":4`) || !strings.Contains(failures, `"message":"again"`) {
				t.Errorf("%v\n%s", merged.Tally.Counts, failures)
			}
			if format == "jsonl" && !strings.Contains(j.files(true)["part-00001.jsonl"], `{"id":3,"_error":{"kind":"record","message":"again"`) {
				t.Errorf("%v", j.files(true))
			}
		})
	}
}

// TestMergeNoValues: if no record of the job succeeded, its results get the layout of the retry.
func TestMergeNoValues(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			want := newFinishedJob(t, format)
			j := newFinishedJob(t, format, all...)
			j.NoValues = true
			j.again(all)
			must(j.Merge())
			if diff := cmp.Diff(want.files(false), j.files(true)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMergeDamaged: a file that is not what the job wrote is a conflict, which names it.
func TestMergeDamaged(t *testing.T) {
	flip := func(path string, at func(size int) int) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[at(len(data))] ^= 1
		return os.WriteFile(path, data, 0o666)
	}
	middle := func(size int) int { return size / 2 }
	for _, format := range formats {
		for name, damage := range map[string]func(j *finishedJob) (string, error){
			"a part": func(j *finishedJob) (string, error) {
				path := filepath.Join(j.Output, j.Parts[1].Name)
				return path, flip(path, middle)
			},
			"a short part": func(j *finishedJob) (string, error) {
				path := filepath.Join(j.Output, j.Parts[1].Name)
				return path, os.Truncate(path, j.Parts[1].Bytes-3)
			},
			"an array": func(j *finishedJob) (string, error) {
				if len(j.arrays) == 0 {
					path := filepath.Join(j.Output, j.Parts[1].Name) // its footer
					return path, flip(path, func(size int) int { return size - 20 })
				}
				return j.arrays[0].Path, flip(j.arrays[0].Path, middle)
			},
			"the retried records": func(j *finishedJob) (string, error) {
				return j.Failed, flip(j.Failed, func(int) int { return len(failedStart) + 1 })
			},
		} {
			t.Run(format+", "+name, func(t *testing.T) {
				j := newFinishedJob(t, format, 2, 3)
				j.again([]int{2, 3})
				before := j.files(false)
				path, err := damage(j)
				chunktest.Must(t, err)
				_, err = j.Merge()
				if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), strings.TrimSuffix(path, "/")) {
					t.Errorf("%v, which does not name %s", err, path)
				}
				after := j.files(false)
				for name := range before {
					if filepath.Base(path) != name && !bytes.Equal([]byte(before[name]), []byte(after[name])) {
						t.Errorf("%s was changed", name)
					}
				}
			})
		}
	}
}
