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
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

var (
	tableColumns = &columns.Spec{Table: &columns.TableSpec{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}}}}
	// columnLayout describes a table with one column, and an array with the same column.
	columnLayout = columns.Layout{Columns: []columns.Column{{Name: "id", Kind: columns.Int64}}, Table: &parquet.Schema{Columns: []parquet.Column{{Name: "id", Type: parquet.Int64}}}}
)

// newTable creates a run that writes a table, and an array beside it.
func newTable(t *testing.T, format string, shards int, records int64) *Run {
	t.Helper()
	dir := t.TempDir()
	r, err := Create(Manifest{
		Output: filepath.Join(dir, "out."+format), Format: format, Shards: shards, Records: records, Columns: tableColumns,
		Arrays: []commit.Array{{Path: filepath.Join(dir, "id.npy")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tableOf returns a table with two row groups, if it has so many records, and its array.
func tableOf(t testing.TB, f table.Format, schema parquet.Schema, first, records int64) (file, array []byte) {
	t.Helper()
	file = f.Head(schema)
	array = columnLayout.Columns[0].Header(records)
	var placed []parquet.Placed
	for _, part := range [][2]int64{{first, records / 2}, {first + records/2, records - records/2}} {
		if part[1] == 0 {
			continue
		}
		group, rows := f.Begin(schema), schema.Rows()
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
		placed = append(placed, parquet.Placed{Offset: int64(len(file)), Meta: meta})
		file = append(file, bytes.Join(pages, nil)...)
	}
	tail, err := f.Tail(schema, placed, false)
	if err != nil {
		t.Fatal(err)
	}
	return append(file, tail...), array
}

// computeTable returns what computes shards of a table with a schema.
func computeTable(t *testing.T, r *Run, schema parquet.Schema) func(context.Context, *Attempt) (Result, error) {
	return func(ctx context.Context, a *Attempt) (Result, error) {
		file, array := tableOf(t, table.Of(r.Format), schema, a.First, a.Records)
		result := Result{Counts: chunk.Counts{Records: a.Records, Succeeded: a.Records}, Arrays: make([]chunk.FileSum, 1)}
		_, _ = result.Output.Write(file)
		_, _ = result.Arrays[0].Write(array)
		return result, errors.Join(os.WriteFile(a.Output(), file, 0o666), os.WriteFile(a.Array(r.Arrays[0]), array, 0o666))
	}
}

// checkTable merges a run and reads the output back.
func checkTable(t *testing.T, r *Run) Merged {
	t.Helper()
	m, err := r.Merge(t.Context(), MergeOptions{LostAfter: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := table.Of(r.Format)
	_, want := tableOf(t, f, *columnLayout.Table, 0, r.Records)
	got, err := os.ReadFile(r.Arrays[0].Path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the array is different: %v", err)
	}
	data, err := os.ReadFile(r.Output)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := f.Groups(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, g := range groups { // each is what it is in a file of its own
		n, size, err := f.Size(g)
		alone, _ := tableOf(t, f, *columnLayout.Table, rows, 2*n)
		if first, _ := f.Groups(bytes.NewReader(alone), int64(len(alone))); err != nil || !bytes.Equal(alone[first[0].Offset:][:size], data[g.Offset:][:size]) {
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
		r := newTable(t, "parquet", 2, 4)
		if l, err := r.Agreement().Layout(); l != nil || err != nil {
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
					got[i], err = own.Agreement().FixLayout(columns.Layout{Columns: []columns.Column{{Name: fmt.Sprintf("c%d", i), Kind: columns.Float32, Width: i}}})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		link = os.Link
		agreed, err := r.Agreement().Layout()
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
	r := newTable(t, "parquet", 2, 4)
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
		got, err := attempts[1].Agreement(t.Context()).FixLayout(other)
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
	if _, err := attempts[0].Agreement(t.Context()).FixLayout(columnLayout); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.Columns[0].Name != "id" {
		t.Errorf("%+v", got)
	}

	r.ID += "-again" // nothing is agreed, and the first shard has ended
	if err := errors.Join(os.Remove(r.join(layoutFile)), attempts[0].finish(endFailed, nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := attempts[1].Agreement(t.Context()).FixLayout(other); err != nil || got.Columns[0].Name != "other" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestMergeTable: row groups and rows of arrays are joined, resumed, and replaced.
func TestMergeTable(t *testing.T) {
	for _, format := range []string{"parquet", "arrow"} {
		t.Run(format, func(t *testing.T) { testMergeTable(t, newTable(t, format, 5, 33)) })
	}
}

func testMergeTable(t *testing.T, r *Run) {
	if _, err := r.Agreement().FixLayout(columnLayout); err != nil {
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
		name, head := before.Output(), len(table.Of(r.Format).Head(*columnLayout.Table))
		if path != r.Output {
			name, head = before.Array(r.Arrays[0]), npy.HeaderBytes
		}
		data[head+9] ^= 1
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
	for name, damage := range map[string]func(output, array string) error{
		"head":    func(output, _ string) error { return flip(output, 1) },
		"page":    func(output, _ string) error { return flip(output, 40) },
		"footer":  func(output, _ string) error { return flip(output, -100) },
		"end":     func(output, _ string) error { return flip(output, -1) },
		"shorter": func(output, _ string) error { return os.Truncate(output, 50) },
		"missing": func(output, _ string) error { return os.Remove(output) },
		"header":  func(_, array string) error { return flip(array, 20) },
		"row":     func(_, array string) error { return flip(array, -3) },
		"no rows": func(_, array string) error { return os.Truncate(array, npy.HeaderBytes-1) },
		"columns": nil,
	} {
		format := map[bool]string{true: "arrow", false: "parquet"}[len(name)%2 == 0] // both meet most of it
		t.Run(name+" "+format, func(t *testing.T) {
			r := newTable(t, format, 3, 12)
			if _, err := r.Agreement().FixLayout(columnLayout); err != nil {
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
				if err := damage(r.ResultOutput(result), filepath.Join(r.attemptDir(result.Attempt), "column-0.npy")); err != nil {
					t.Fatal(err)
				}
			}
			_, err = r.Merge(t.Context(), MergeOptions{})
			if e := fault.As(err); e == nil || e.Code != fault.BadShard || e.Value != r.commitPath(0) || damage == nil && !errors.Is(err, errLayout) {
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
	formats := []string{"parquet", "arrow"}
	for _, name := range formats {
		for _, records := range []int64{0, 1, 9} {
			file, _ := tableOf(f, table.Of(name), *columnLayout.Table, 0, records)
			f.Add(file)
			f.Add(file[:len(file)-9])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range formats {
			c := &groups{format: table.Of(name), schema: *columnLayout.Table}
			from, to, err := c.body(bytes.NewReader(data), int64(len(data)))
			if err == nil && (from > to || to > from && to > int64(len(data))) {
				t.Fatalf("%d to %d of %d", from, to, len(data))
			}
			_, _, _ = c.ends(to - from) // may fail: the merge finds that the checksum differs
		}
	})
}
