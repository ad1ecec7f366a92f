package commit

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// rowJob is a job with columns: an array beside lines, or a table.
type rowJob struct {
	*job
	spec    *columns.Spec
	layout  columns.Layout
	options Options
}

func newRowJob(t testing.TB, format string, parts int64) *rowJob {
	t.Helper()
	j := &rowJob{job: newJob(t)}
	f, err := encode.ByName(format)
	chunktest.Must(t, err)
	j.layout.Columns = []columns.Column{{Name: "v", Kind: columns.Float32, Width: 2}}
	j.options = Options{Path: j.out, WorkDir: j.work(), Format: f, UnitBytes: 200, PartBytes: parts, Replace: true}
	if parts > 0 {
		j.options.Path += ".d"
	}
	if f.Table {
		j.spec = &columns.Spec{Table: &columns.TableSpec{}}
		j.layout.Table = &parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}, {Name: "v", Type: parquet.Float32, Width: 2, Typed: true}}}
		j.options.KeepFailed = true
	} else {
		j.spec = &columns.Spec{Arrays: []columns.ArraySpec{{Name: "v"}}}
		j.options.Arrays = []Array{{Path: j.out + ".npy"}, {Path: j.out + ".mask.npy", Mask: true}}
	}
	return j
}

// segment has some records of each sort. It ends a planned chunk unless inner.
func (j *rowJob) segment(t testing.TB, first, records int64, inner bool) chunk.Segment {
	t.Helper()
	j.made++
	part := NewPart(PartOptions{
		Path:  filepath.Join(j.parts(), fmt.Sprintf("part-%d", j.made)),
		Chunk: chunk.Chunk{File: "in", First: first, Line: first + 1, Following: following(inner)}, Rows: true, Store: StoreOf(j.options.Format),
	})
	for id := first; id < first+records; id++ {
		line := fmt.Sprintf("{\"id\":%d}", id)
		switch id % 7 {
		case 3:
			chunktest.Must(t, part.Write(Outcome{Record: input.Record{Data: []byte(line), Index: id, Line: id + 1}, Fault: fault.New(fault.Record, "rejected")}))
		case 4:
			chunktest.Must(t, part.Write(Outcome{Dropped: true}))
		case 5:
			chunktest.Must(t, part.Write(j.outcome(line, id, 2)))
		default:
			chunktest.Must(t, part.Write(j.outcome(line, id, 1)))
		}
	}
	segment, err := part.Close(chunk.Chunk{File: "in", First: first + records, Line: first + records + 1})
	chunktest.Must(t, err)
	return segment
}

// outcome is a record with n times the same result.
func (j *rowJob) outcome(line string, id int64, n int) (o Outcome) {
	values, _ := binary.Append(nil, binary.LittleEndian, []float32{float32(id), -0.5})
	for range n {
		if j.layout.Table == nil {
			o.Lines, o.Values = append(o.Lines, line+"\n"...), append(o.Values, values...)
			continue
		}
		row, err := j.layout.Table.Rows().Append(nil, []byte(line), [][]byte{values})
		if err != nil {
			panic(err)
		}
		o.Lines, o.Values = append(o.Lines, row...), columns.AppendEntry(o.Values, int64(len(row)), true)
	}
	return o
}

// open opens the output: a new one, or what its journal leads to.
func (j *rowJob) open(t testing.TB) (*Output, State) {
	t.Helper()
	j.options.Layout = columns.NewShared(j.spec, &j.layout)
	path := filepath.Join(j.work(), "journal")
	if _, err := os.Stat(path); err != nil {
		j.options.Journal, err = CreateJournal(path)
		chunktest.Must(t, err)
		o, err := Create(j.options)
		chunktest.Must(t, err)
		return o, State{}
	}
	var entries []Entry
	var err error
	j.options.Journal, entries, err = OpenJournal(path)
	chunktest.Must(t, err)
	state, err := Replay(entries)
	chunktest.Must(t, err)
	good, whole, err := state.CheckOutput(t.Context(), j.options)
	chunktest.Must(t, err)
	if !whole {
		chunktest.Must(t, state.CutBack(good, j.options.Journal))
	}
	chunktest.Must(t, state.Verify(j.parts(), j.options.Journal))
	o, err := Resume(j.options, state)
	chunktest.Must(t, err)
	return o, state
}

// files returns what the job has written.
func (j *rowJob) files(t testing.TB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	chunktest.Must(t, filepath.Walk(filepath.Dir(j.out), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || strings.HasSuffix(path, "/journal") || strings.Contains(path, "/parts/") {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, filepath.Dir(j.out))] = string(data)
		return err
	}))
	return all
}

const rowChunks, rowChunk = 12, 9

// TestRowsResume: outputs with columns are the same after kills at random places, after
// bits of them have flipped, and whoever computed what.
func TestRowsResume(t *testing.T) {
	rounds := 2
	if os.Getenv("GPURUN_TEST_ALL") != "" {
		rounds = 6
	}
	for _, test := range []struct {
		format string
		parts  int64
	}{{"jsonl", 0}, {"jsonl.zst", 0}, {"jsonl", 300}, {"parquet", 0}, {"parquet", 600}, {"arrow", 0}, {"arrow", 3000}} {
		t.Run(fmt.Sprint(test.format, " ", test.parts), func(t *testing.T) {
			undisturbed := newRowJob(t, test.format, test.parts)
			o, _ := undisturbed.open(t)
			for i := range int64(rowChunks) {
				chunktest.Must(t, o.Commit(undisturbed.segment(t, i*rowChunk, rowChunk, false)))
			}
			chunktest.Must(t, o.Finish())
			want := undisturbed.files(t)
			random := rand.New(rand.NewPCG(1, uint64(test.parts)))
			for range rounds {
				j := newRowJob(t, test.format, test.parts)
				for {
					o, state := j.open(t)
					killed := false
					for i := int64(0); i < rowChunks && !killed; i++ {
						first, end := i*rowChunk, (i+1)*rowChunk
						for first < end && !killed {
							n := 1 + random.Int64N(end-first)
							switch {
							case state.Holds(first, 1):
								n = 1
							default:
								for k := int64(1); k < n; k++ {
									if state.Holds(first+k, 1) {
										n = k
									}
								}
								chunktest.Must(t, o.Commit(j.segment(t, first, n, first+n < end)))
								if random.IntN(4) == 0 {
									chunktest.Must(t, o.Checkpoint(true))
								}
								killed = random.IntN(25) == 0
							}
							first += n
						}
					}
					if !killed {
						chunktest.Must(t, o.Finish())
						break
					}
					o.close()
					j.options.Journal.Close()
					j.rot(t, random)
				}
				if diff := cmp.Diff(want, j.files(t)); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

// rot flips a bit of an unfinished file.
func (j *rowJob) rot(t testing.TB, random *rand.Rand) {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.partial", "output.partial/*", "parts/*"} {
		found, _ := filepath.Glob(filepath.Join(j.work(), pattern))
		paths = append(paths, found...)
	}
	path := paths[random.IntN(len(paths))]
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return
	}
	data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	chunktest.Must(t, os.WriteFile(path, data, 0o600))
}

// TestDamagedRows: a part that is damaged before its unit is encoded is never used.
func TestDamagedRows(t *testing.T) {
	for _, format := range []string{"jsonl", "parquet", "arrow"} {
		for _, suffix := range []string{".out", suffixes[indexFile], suffixes[valuesFile]} {
			j := newRowJob(t, format, 0)
			o, _ := j.open(t)
			segment := j.segment(t, 0, rowChunk, false)
			path := filepath.Join(j.parts(), segment.Part+suffix)
			data, err := os.ReadFile(path)
			if format != "jsonl" && suffix == suffixes[valuesFile] && os.IsNotExist(err) {
				continue // rows hold their values
			}
			chunktest.Must(t, err)
			data[len(data)/2] ^= 1
			chunktest.Must(t, os.WriteFile(path, data, 0o600))
			err = o.Commit(segment)
			if err == nil {
				err = o.Finish()
			}
			if fault.KindOf(err) != fault.Storage {
				t.Errorf("%s, %s: %v", format, suffix, err)
			}
			o.close()
		}
	}
}

// TestDamagedEnd: between the last entry of the journal and the renames, no byte of an output is
// damaged unnoticed: not of the end of a Parquet file, of the header of an array, or of the one
// frame of an output without records. The output is then completed again.
func TestDamagedEnd(t *testing.T) {
	for _, test := range []struct {
		format string
		parts  int64
		chunks int64
	}{{"jsonl", 0, 3}, {"jsonl", 0, 0}, {"jsonl.zst", 0, 3}, {"jsonl.gz", 0, 0}, {"jsonl", 300, 3}, {"parquet", 0, 3}, {"parquet", 0, 0}, {"parquet", 600, 4}, {"arrow", 0, 3}, {"arrow", 3000, 4}} {
		t.Run(fmt.Sprint(test.format, " ", test.parts, " ", test.chunks), func(t *testing.T) {
			j := newRowJob(t, test.format, test.parts)
			o, _ := j.open(t)
			for i := range test.chunks {
				chunktest.Must(t, o.Commit(j.segment(t, i*rowChunk, rowChunk, false)))
				chunktest.Must(t, o.Checkpoint(true))
			}
			chunktest.Must(t, o.Finish())
			want := j.files(t)
			j.options.Journal.Close()
			journal := filepath.Join(j.work(), "journal")
			complete, err := os.ReadFile(journal)
			chunktest.Must(t, err)
			j.unname(t)
			entries, err := ReadJournal(journal)
			chunktest.Must(t, err)
			state, err := Replay(entries)
			chunktest.Must(t, err)
			if good, whole, err := state.CheckOutput(t.Context(), j.options); err != nil || !whole || good != len(state.Output) {
				t.Fatalf("without damage: %d segments are good, whole %t: %v", good, whole, err)
			}
			all, err := filepath.Glob(filepath.Join(j.work(), "*.partial"))
			chunktest.Must(t, err)
			inside, _ := filepath.Glob(filepath.Join(j.work(), "output.partial", "*"))
			for _, path := range append(all, inside...) {
				data, err := os.ReadFile(path)
				if err != nil || len(data) == 0 {
					continue // a folder, or no failed records
				}
				for i := 0; i < len(data); i += 1 + len(data)/64 {
					damaged := append([]byte(nil), data...)
					damaged[i] ^= 1 << (i % 8)
					chunktest.Write(t, path, damaged)
					if _, whole, err := state.CheckOutput(t.Context(), j.options); err != nil || whole {
						t.Fatalf("%s, byte %d of %d: the damage goes unnoticed: %v", filepath.Base(path), i, len(data), err)
					}
				}
				for _, damaged := range [][]byte{data[:len(data)-1], append(append([]byte(nil), data[:len(data)-1]...), data[len(data)-1]^1), append([]byte{data[0] ^ 1}, data[1:]...)} {
					chunktest.Write(t, path, damaged)
					chunktest.Write(t, journal, complete)
					o, state := j.open(t)
					for _, c := range state.Remaining([]chunk.Chunk{{File: "in", Records: test.chunks * rowChunk, Line: 1}}) {
						for ; c.Records > 0; c.First, c.Records = c.First+rowChunk, c.Records-rowChunk {
							chunktest.Must(t, o.Commit(j.segment(t, c.First, rowChunk, false)))
						}
					}
					chunktest.Must(t, o.Finish())
					j.options.Journal.Close()
					if diff := cmp.Diff(want, j.files(t)); diff != "" {
						t.Fatalf("%s: %s", filepath.Base(path), diff)
					}
					j.unname(t)
				}
			}
		})
	}
}

// unname gives the files of a finished output their temporary names again.
func (j *rowJob) unname(t testing.TB) {
	t.Helper()
	for _, f := range j.options.files() {
		if f.final != "" {
			chunktest.Must(t, os.Rename(f.final, f.temporary))
		}
	}
	_ = os.Remove(ManifestPath(j.options.Path))
}
