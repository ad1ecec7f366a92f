package commit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

const givenUp = `"_error":{"kind":"crash","message":"gone","step":"embed","line":%d}`

func TestGiveUp(t *testing.T) {
	upstream := `{"_error": {"kind":"oom"}, "a":1 }`
	data := "{\"a\":1}\r\n\n" + upstream + "\nnot JSON\n{\"a\":{\"_error\":1}}\n[\"_error\"]\n" + upstream
	out := fmt.Sprintf("{\"a\":1,"+givenUp+"}\n", 1) + upstream + "\n" +
		fmt.Sprintf("{\"_raw\":\"not JSON\","+givenUp+"}\n", 4) +
		fmt.Sprintf("{\"a\":{\"_error\":1},"+givenUp+"}\n", 5) +
		fmt.Sprintf("{\"_raw\":\"[\\\"_error\\\"]\","+givenUp+"}\n", 6) + upstream + "\n"
	for _, apart := range []bool{false, true} {
		// However small the limit, records that are too long are kept as well.
		for _, maxRecord := range []int64{1, 16 << 20} {
			t.Run(fmt.Sprintf("apart=%v/max=%d", apart, maxRecord), func(t *testing.T) {
				dir := t.TempDir()
				path := chunktest.Temporary(t, []byte(data))
				planned := plan(t, path, cutOptions{})
				c := planned[0]
				options := PartOptions{Path: filepath.Join(dir, "p"), ErrorsApart: apart, Step: "embed"}
				segment, err := GiveUp(c, options, maxRecord, fault.New(fault.Crash, "gone").WithDetail("trace"))
				chunktest.Must(t, err)
				all := contents(t, dir)
				name := "p.out"
				if apart {
					name = "p.err"
				}
				want := chunk.Segment{
					Start: chunk.Place{Offset: 0, Line: 1}, Next: chunk.Place{Offset: int64(len(data)), Line: 8}, Part: "p", Files: sums(all, "p"),
					Tally: chunk.Tally{Counts: chunk.Counts{Records: 6, Failed: 6}, Kinds: map[string]chunk.KindStats{
						"crash":    {Count: 4, Example: "gone", Detail: "trace", Line: 1},
						"upstream": {Count: 2, Example: "the record already has an _error in the input", Line: 3},
					}, Causes: map[string]chunk.KindStats{
						"crash: gone": {Count: 4, Example: "gone", Line: 1},
						"upstream: the record already has an _error in the input": {Count: 2, Example: "the record already has an _error in the input", Code: string(fault.EarlierError), Line: 3},
					}},
				}
				if !apart {
					want.Lines = 6
				}
				if diff := cmp.Diff(want, segment); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(out, all[name]); diff != "" {
					t.Error(diff)
				}
				checkFailures(t, []byte(data), path, all["p.failures"])
				if len(all) != 2 {
					t.Errorf("files %v", chunktest.Files(t, dir))
				}
			})
		}
	}
}

// checkFailures checks that each line leads back to its record in the file.
func checkFailures(t *testing.T, data []byte, path, failures string) {
	t.Helper()
	all, _ := chunktest.Records(data)
	for i, text := range strings.Split(strings.TrimSuffix(failures, "\n"), "\n") {
		var f record.Failure
		chunktest.Must(t, json.Unmarshal([]byte(text), &f))
		got := chunktest.Line{Data: string(data[f.Offset : f.Offset+f.Length]), Index: f.Record, Line: f.Line, Offset: f.Offset}
		if diff := cmp.Diff(all[i], got); diff != "" || f.File != path {
			t.Errorf("failure %d of %s: %s", i, f.File, diff)
		}
		want := fault.Crash
		if strings.HasPrefix(got.Data, `{"_error"`) {
			want = fault.Upstream
		}
		if f.Kind != want {
			t.Errorf("failure %d is of kind %v, want %v", i, f.Kind, want)
		}
	}
}

// TestGiveUpMany: chunks of more than one batch are reassembled.
func TestGiveUpMany(t *testing.T) {
	const n = 5000
	j := newJob(t)
	planned := plan(t, chunktest.Temporary(t, chunktest.Numbered(n)), cutOptions{Chunks: 3})
	o := j.create(t, j.out, "")
	for i, c := range planned {
		segment, err := GiveUp(c, PartOptions{Path: filepath.Join(j.parts(), fmt.Sprint(i))}, 1<<20, fault.New(fault.Crash, "gone"))
		chunktest.Must(t, err)
		chunktest.Must(t, o.Commit(segment))
	}
	counts, next := o.Appended()
	if want := (chunk.Counts{Records: n, Failed: n}); counts.Counts != want || next != n {
		t.Errorf("counts %+v up to %d", counts, next)
	}
	chunktest.Must(t, o.Finish())
	got, err := os.ReadFile(j.out)
	chunktest.Must(t, err)
	for i, line := range strings.SplitAfter(strings.TrimSuffix(string(got), "\n"), "\n") {
		if !strings.HasPrefix(line, fmt.Sprintf(`{"id":%d,"_error":{`, i)) {
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
}

// TestGiveUpFails: no files remain of a part that could not be written or whose input is
// missing.
func TestGiveUpFails(t *testing.T) {
	for name, c := range map[string]struct {
		records int
		dir     func(t *testing.T) string
		damage  func(path string) error
	}{
		"input missing": {3000, func(t *testing.T) string { return t.TempDir() }, os.Remove},
		"input shorter": {3000, func(t *testing.T) string { return t.TempDir() }, func(path string) error { return os.Truncate(path, 30000) }},
		"no folder":     {3000, func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, nil},
		"full":          {30000, chunktest.TinyDisk, nil},
		"full at Close": {1000, chunktest.TinyDisk, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir(t)
			path := chunktest.Temporary(t, chunktest.Numbered(c.records))
			planned := plan(t, path, cutOptions{})
			chunk := planned[0]
			if c.damage != nil {
				chunktest.Must(t, c.damage(path))
			}
			_, err := GiveUp(chunk, PartOptions{Path: filepath.Join(dir, "p")}, 1<<20, fault.New(fault.Crash, "gone"))
			chunktest.WantKind(t, err, fault.Storage)
			if got := chunktest.Files(t, dir); len(got) > 0 {
				t.Errorf("files left: %v", got)
			}
		})
	}
}
