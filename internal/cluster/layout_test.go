package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	encoded "github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

var (
	tableColumns = &columns.Spec{Table: &columns.TableSpec{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}}}}
	// columnLayout is that of a table with one column, and of an array with the same one.
	columnLayout = columns.Layout{Columns: []columns.Column{{Name: "id", Kind: columns.Int64}}, Table: &parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}}}}
)

// newTable creates a run that writes a table, and an array beside it.
func newTable(t *testing.T, shards int, records int64) *Run {
	t.Helper()
	dir := t.TempDir()
	r, err := Create(Manifest{
		Output: filepath.Join(dir, "out.parquet"), Format: "parquet", Shards: shards, Records: records, Columns: tableColumns,
		Arrays: []commit.Array{{Path: filepath.Join(dir, "id.npy")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tableOf returns a table with two row groups, if it has so many records, and its array.
func tableOf(t testing.TB, schema parquet.Schema, first, records int64) (table, array []byte) {
	t.Helper()
	table = []byte(encoded.Head)
	array = columnLayout.Columns[0].Header(records)
	var placed []encoded.Placed
	for _, part := range [][2]int64{{first, records / 2}, {first + records/2, records - records/2}} {
		if part[1] == 0 {
			continue
		}
		group, rows := encoded.NewGroup(schema), schema.Rows()
		for i := range part[1] {
			row, err := rows.Append(nil, []byte(strings.TrimSpace(line(part[0]+i))), nil)
			if err == nil {
				err = group.Add(row)
			}
			if err != nil {
				t.Fatal(err)
			}
			array = binary.LittleEndian.AppendUint64(array, uint64(part[0]+i))
		}
		pages, meta := group.Finish()
		placed = append(placed, encoded.Placed{Offset: int64(len(table)), Meta: meta})
		table = append(table, bytes.Join(pages, nil)...)
	}
	tail, err := encoded.Tail(schema, placed, false)
	if err != nil {
		t.Fatal(err)
	}
	return append(table, tail...), array
}

// computeTable returns what computes shards of a table with a schema.
func computeTable(t *testing.T, r *Run, schema parquet.Schema) func(context.Context, *Attempt) (Result, error) {
	return func(ctx context.Context, a *Attempt) (Result, error) {
		table, array := tableOf(t, schema, a.First, a.Records)
		result := Result{Counts: chunk.Counts{Records: a.Records, Succeeded: a.Records}, Arrays: make([]chunk.FileSum, 1)}
		_, _ = result.Output.Write(table)
		_, _ = result.Arrays[0].Write(array)
		return result, errors.Join(os.WriteFile(a.Output(), table, 0o666), os.WriteFile(a.Array(r.Arrays[0]), array, 0o666))
	}
}

// checkTable merges a run and reads the output back.
func checkTable(t *testing.T, r *Run) Merged {
	t.Helper()
	m, err := r.Merge(t.Context(), MergeOptions{LostAfter: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, want := tableOf(t, *columnLayout.Table, 0, r.Records)
	got, err := os.ReadFile(r.Arrays[0].Path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the array is different: %v", err)
	}
	data, err := os.ReadFile(r.Output)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := encoded.ReadGroups(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, g := range groups { // each is what it is in a file of its own
		n, size, err := g.Size()
		alone, _ := tableOf(t, *columnLayout.Table, rows, 2*n)
		if first, _ := encoded.ReadGroups(bytes.NewReader(alone), int64(len(alone))); err != nil || !bytes.Equal(alone[first[0].Offset:][:size], data[g.Offset:][:size]) {
			t.Fatalf("the row group of row %d is different, %v", rows, err)
		}
		rows += n
	}
	sum, _ := chunk.SumFile(t.Context(), r.Output)
	if rows != r.Records || sum != m.Sum {
		t.Errorf("%d rows; the checksum is %v, not %v", rows, sum, m.Sum)
	}
	return m
}

// TestLayoutIsAgreedOnce: of several machines that propose a layout at once, one decides, and all get
// its layout, also if the response of a file system is lost.
func TestLayoutIsAgreedOnce(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := newTable(t, 2, 4)
		if l, err := r.Layout(); l != nil || err != nil {
			t.Fatal(l, err)
		}
		if lost {
			link = func(old, public string) error { return errors.Join(os.Link(old, public), os.ErrExist) }
		}
		got := make([]columns.Layout, 8)
		var group sync.WaitGroup
		for i := range got {
			group.Go(func() {
				own, err := open(r.Output, 1) // as another machine has it
				if err == nil {
					got[i], err = own.FixLayout(columns.Layout{Columns: []columns.Column{{Name: fmt.Sprintf("c%d", i), Kind: columns.Float32, Width: i}}})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		link = os.Link
		agreed, err := r.Layout()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range got {
			if len(l.Columns) != 1 || l.Columns[0].Name != agreed.Columns[0].Name || l.Columns[0].Width != agreed.Columns[0].Width {
				t.Errorf("%+v, but %+v was agreed", l, agreed)
			}
		}
		if left, _ := filepath.Glob(r.join(layoutFile + ".*")); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	}
}

// TestFirstShardDecides: a machine that is faster waits for the first shard, as long as that is being
// computed.
func TestFirstShardDecides(t *testing.T) {
	r := newTable(t, 2, 4)
	var attempts [2]*Attempt
	for i := range attempts {
		var err error
		if attempts[i], err = r.newAttempt(i, key(i), 0, nil); err != nil {
			t.Fatal(err)
		}
		if won, err := attempts[i].claimAfter(0); err != nil || !won {
			t.Fatal(won, err)
		}
	}
	other := columns.Layout{Columns: []columns.Column{{Name: "other", Kind: columns.Bool}}}
	ended := make(chan columns.Layout)
	go func() {
		got, err := attempts[1].FixLayout(t.Context(), other)
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	select {
	case <-ended:
		t.Error("it did not wait")
	case <-time.After(3 * layoutPoll):
	}
	if _, err := attempts[0].FixLayout(t.Context(), columnLayout); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.Columns[0].Name != "id" {
		t.Errorf("%+v", got)
	}

	r.ID += "-again" // nothing is agreed, and the first shard has ended
	if err := errors.Join(os.Remove(r.join(layoutFile)), attempts[0].finish(endFailed, nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := attempts[1].FixLayout(t.Context(), other); err != nil || got.Columns[0].Name != "other" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestMergeTable: row groups and rows of arrays are joined, resumed, and replaced.
func TestMergeTable(t *testing.T) {
	r := newTable(t, 5, 33)
	if _, err := r.FixLayout(columnLayout); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Work(t.Context(), fast(0, computeTable(t, r, *columnLayout.Table))); err != nil {
		t.Fatal(err)
	}
	want := checkTable(t, r)

	// An interrupted merge has left its files, one of them damaged.
	for _, path := range []string{r.Output, r.Arrays[0].Path} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := &merge{run: r, replaces: true, MergeOptions: MergeOptions{Progress: func(int64, int64) {}, Force: true}, merged: Merged{Counts: want.Counts}}
		before, err := r.newAttempt(-1, mergeKey, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.before = before.dir
		data[npy.HeaderBytes+9] ^= 1
		name := before.Output()
		if path != r.Output {
			name = before.Array(r.Arrays[0])
		}
		if err := os.WriteFile(name, append(data, "more than there is"...), 0o666); err != nil {
			t.Fatal(err)
		}
		if m.attempt, err = r.newAttempt(-1, mergeKey, 0, nil); err != nil {
			t.Fatal(err)
		}
		if m.results, err = r.Results(); err != nil {
			t.Fatal(err)
		}
		if err := m.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if path == r.Output && (m.merged.Resumed == 0 || m.merged.Resumed == 33) {
			t.Errorf("%d records were taken over", m.merged.Resumed)
		}
		if m.merged.Sum != want.Sum || m.merged.Arrays[0] != want.Arrays[0] {
			t.Errorf("%+v; want %+v", m.merged, want)
		}
		checkTable(t, r)
	}
}

// TestMergeRefusesDamagedTable: the merge finds damage at every place of a shard's files, and a table
// that does not have the columns of the run.
func TestMergeRefusesDamagedTable(t *testing.T) {
	other := parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Float64}}}
	for name, damage := range map[string]func(t *testing.T, dir string) error{
		"head":    func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "out.parquet"), 1) },
		"page":    func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "out.parquet"), 40) },
		"footer":  func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "out.parquet"), -100) },
		"end":     func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "out.parquet"), -1) },
		"shorter": func(t *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "out.parquet"), 50) },
		"missing": func(t *testing.T, dir string) error { return os.Remove(filepath.Join(dir, "out.parquet")) },
		"header":  func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "column-0.npy"), 20) },
		"row":     func(t *testing.T, dir string) error { return flip(filepath.Join(dir, "column-0.npy"), -3) },
		"no rows": func(t *testing.T, dir string) error {
			return os.Truncate(filepath.Join(dir, "column-0.npy"), npy.HeaderBytes-1)
		},
		"columns": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newTable(t, 3, 12)
			if _, err := r.FixLayout(columnLayout); err != nil {
				t.Fatal(err)
			}
			good := computeTable(t, r, *columnLayout.Table)
			compute := good
			if damage == nil {
				compute = computeTable(t, r, other)
			}
			if _, err := r.Work(t.Context(), fast(0, compute)); err != nil {
				t.Fatal(err)
			}
			result, err := r.result(0)
			if err != nil {
				t.Fatal(err)
			}
			if damage != nil {
				if err := damage(t, r.attemptDir(result.Attempt)); err != nil {
					t.Fatal(err)
				}
			}
			_, err = r.Merge(t.Context(), MergeOptions{})
			if e := fault.As(err); e == nil || e.Code != fault.BadShard || e.Value != r.commitPath(0) || (damage == nil) != errors.Is(err, errLayout) && name != "header" {
				t.Fatal(err)
			}
			if _, err := os.Stat(r.Output); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the output exists: %v", err)
			}
			if damage == nil {
				return
			}
			if err := os.Remove(r.commitPath(0)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Work(t.Context(), fast(0, good)); err != nil {
				t.Fatal(err)
			}
			checkTable(t, r)
		})
	}
}

// flip changes a bit of a file; a negative offset counts from the end.
func flip(path string, at int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[(at+len(data))%len(data)] ^= 1
	return os.WriteFile(path, data, 0o666)
}

// FuzzTableBody: whatever a shard's file contains, its body is inside it, or there is an error.
func FuzzTableBody(f *testing.F) {
	for _, records := range []int64{0, 1, 9} {
		table, _ := tableOf(f, *columnLayout.Table, 0, records)
		f.Add(table)
		f.Add(table[:len(table)-9])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &table{schema: columnLayout.Table}
		from, to, err := c.body(bytes.NewReader(data), int64(len(data)))
		if err == nil && (from > to || to > int64(len(data))) {
			t.Fatalf("%d to %d of %d", from, to, len(data))
		}
		if _, _, failed := c.ends(to - from); err == nil && failed != nil {
			t.Skip(failed) // its checksum differs, and the merge finds that
		}
	})
}
