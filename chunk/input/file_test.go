package input

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

func sizes(chunks []chunk.Chunk) []int64 {
	all := []int64{}
	for _, c := range chunks {
		all = append(all, c.Records)
	}
	return all
}

func TestCutByRecords(t *testing.T) {
	for _, c := range []struct {
		n       int
		options cutOptions
		want    []int64
	}{
		{10, cutOptions{Chunks: 3}, []int64{4, 4, 2}},
		{10, cutOptions{Chunks: 3, BatchSize: 1, Split: SplitRecords}, []int64{4, 4, 2}},
		{10, cutOptions{Chunks: 1}, []int64{10}},
		{10, cutOptions{}, []int64{10}},
		{2, cutOptions{Chunks: 3}, []int64{1, 1}},
		{10, cutOptions{Chunks: 3, BatchSize: 3}, []int64{6, 4}},
		{0, cutOptions{Chunks: 3}, []int64{}},
		{10, cutOptions{Chunks: 3, Limits: Limits{Offset: 3}}, []int64{3, 3, 1}},
		{10, cutOptions{Chunks: 3, Limits: Limits{Limit: 4}}, []int64{2, 2}},
		{10, cutOptions{Chunks: 3, Limits: Limits{Limit: 4}, Split: SplitBytes}, []int64{2, 2}},
	} {
		t.Run(fmt.Sprintf("%d/%+v", c.n, c.options), func(t *testing.T) {
			source := open(t, chunktest.Temporary(t, chunktest.Numbered(c.n)), c.options)
			defer closeSource(t, source)
			if diff := cmp.Diff(c.want, sizes(drain(t, source))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// checkCover checks that the chunks contain every non-blank byte once, in order, and that
// they describe themselves correctly.
func checkCover(t *testing.T, data []byte, source *Source, split Split) {
	t.Helper()
	want, blank := chunktest.Records(data)
	chunks := drain(t, source)
	if diff := cmp.Diff(want, readAll(t, chunks)); diff != "" {
		t.Errorf("records: %s", diff)
	}
	if got := source.Blank(); got != blank {
		t.Errorf("blank lines %d, want %d", got, blank)
	}
	if total, known := source.Total(); !known || total != int64(len(want)) {
		t.Errorf("total %d (%v), want %d", total, known, len(want))
	}
	at, first := int64(0), int64(0)
	if bytes.HasPrefix(data, byteOrderMark) {
		at = int64(len(byteOrderMark))
	}
	for i, c := range chunks {
		gap := data[at:c.Offset]
		if len(gap) > 0 && (split != SplitBytes || len(bytes.Trim(gap, " \t\r\n")) > 0) {
			t.Errorf("chunk %d: bytes %q before it are in no chunk", i, gap)
		}
		if c.First != first || c.Records < 1 {
			t.Errorf("chunk %d has records %d+%d, want them from %d", i, c.First, c.Records, first)
		}
		if line := int64(1 + bytes.Count(data[:c.Offset], []byte("\n"))); c.Line != line {
			t.Errorf("chunk %d begins at line %d, want %d", i, c.Line, line)
		}
		at, first = c.Offset+c.Length, c.First+c.Records
	}
	if gap := data[at:]; len(chunks) > 0 && len(gap) > 0 && (split != SplitBytes || len(bytes.Trim(gap, " \t\r\n")) > 0) {
		t.Errorf("bytes %q at the end are in no chunk", gap)
	}
	if _, err := source.Next(t.Context()); err != io.EOF {
		t.Errorf("after the last chunk: %v", err)
	}
}

func TestFileCovers(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	inputs := make([][]byte, 0, 400)
	for _, s := range chunktest.Nasty {
		inputs = append(inputs, []byte(s))
	}
	for range 200 {
		inputs = append(inputs, chunktest.Input(r, 40))
	}
	for _, data := range inputs {
		chunktest.Write(t, path, data)
		for _, split := range []Split{SplitAuto, SplitBytes} {
			shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 1+r.IntN(32))
			options := cutOptions{Chunks: 1 + r.IntN(12), BatchSize: r.IntN(4), Split: split}
			source := open(t, path, options)
			checkCover(t, data, source, split)
			closeSource(t, source)
			if t.Failed() {
				t.Fatalf("%q cut by %+v, blocks of %d, reads of %d", data, options, blockBytes, readBytes)
			}
		}
	}
}

func TestFileLimits(t *testing.T) {
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	for range 300 {
		data := chunktest.Input(r, 30)
		chunktest.Write(t, path, data)
		all, _ := chunktest.Records(data)
		n := int64(len(all))
		limits := Limits{Offset: r.Int64N(n + 3), Limit: r.Int64N(n + 3)}
		if r.IntN(8) == 0 {
			limits.Limit = math.MaxInt64
		}
		shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 64)
		source := open(t, path, cutOptions{Limits: limits, Chunks: 1 + r.IntN(6)})
		want := limited(all, limits)
		if diff := cmp.Diff(want, readAll(t, drain(t, source))); diff != "" {
			t.Fatalf("%q, %+v: %s", data, limits, diff)
		}
		if total, known := source.Total(); !known || total != int64(len(want)) {
			t.Fatalf("total %d (%v), want %d", total, known, len(want))
		}
		closeSource(t, source)
	}
}

// TestCutAgain: a count that is cut again gives the same chunks as a new one.
func TestCutAgain(t *testing.T) {
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	for range 200 {
		chunktest.Write(t, path, chunktest.Input(r, 40))
		shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 64)
		options := cutOptions{Chunks: 1 + r.IntN(12), BatchSize: r.IntN(4)}
		if r.IntN(2) == 0 {
			options.Limits = Limits{Offset: r.Int64N(9), Limit: r.Int64N(40)}
		}
		count, err := CountFile(t.Context(), path, options.Limits, nil)
		chunktest.Must(t, err)
		_, err = count.Cut(1+r.IntN(12), r.IntN(4))
		chunktest.Must(t, err)
		again, err := count.Cut(options.Chunks, options.BatchSize)
		chunktest.Must(t, err)
		if diff := cmp.Diff(cutFile(t, path, options), again); diff != "" {
			t.Fatalf("%+v: %s", options, diff)
		}
	}
}

// TestWindow: the chunks of a window are numbered as in the whole file, however it is split.
func TestWindow(t *testing.T) {
	r := chunktest.Seeded(t)
	path := filepath.Join(t.TempDir(), "in.jsonl")
	for range 100 {
		data := chunktest.Input(r, 40)
		chunktest.Write(t, path, data)
		all, _ := chunktest.Records(data)
		shrink(t, 1+r.Int64N(64), 1+r.IntN(32), 64)
		var got []chunktest.Line
		for _, window := range cutFile(t, path, cutOptions{Chunks: 1 + r.IntN(5)}).Chunks {
			source := open(t, path, cutOptions{Chunks: 1 + r.IntN(5), Split: []Split{SplitRecords, SplitBytes}[r.IntN(2)], Window: &window})
			got = append(got, readAll(t, drain(t, source))...)
			closeSource(t, source)
		}
		if diff := cmp.Diff(all, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q: %s", data, diff)
		}
	}
}

func limited(all []chunktest.Line, limits Limits) []chunktest.Line {
	all = all[min(limits.Offset, int64(len(all))):]
	if limits.Limit > 0 {
		all = all[:min(limits.Limit, int64(len(all)))]
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func TestFileBlank(t *testing.T) {
	for data, want := range map[string]int64{
		"": 0, "\n": 1, "\n \n\t\r\n": 3, " ": 1, "\xef\xbb\xbf\n\n": 2, "\na\n": 1, "a\n\n": 1, "\xef\xbb\xbf": 0,
	} {
		for _, split := range []Split{SplitRecords, SplitBytes} {
			source := open(t, chunktest.Temporary(t, []byte(data)), cutOptions{Chunks: 3, Split: split})
			drain(t, source)
			if got := source.Blank(); got != want {
				t.Errorf("%q by %s: %d blank lines, want %d", data, split, got, want)
			}
			closeSource(t, source)
		}
	}
}

func TestOpenFileRefuses(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"missing": filepath.Join(dir, "none"), "folder": dir, "fifo": fifo, "device": "/dev/null",
		"below a file": filepath.Join(chunktest.Write(t, filepath.Join(dir, "file"), nil), "x"), "empty name": "",
	} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan error, 1)
			go func() {
				_, err := CountFile(context.Background(), path, Limits{}, nil)
				refused <- err
			}()
			select {
			case err := <-refused:
				chunktest.WantKind(t, err, fault.Usage)
			case <-time.After(10 * time.Second):
				t.Error("OpenFile hangs")
			}
		})
	}
}

func TestOpenFileUnreadable(t *testing.T) {
	path := chunktest.Temporary(t, chunktest.Numbered(3))
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		// Root may read everything, so another user tries: on a
		// thread that ends with this goroutine.
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			_, _ = unix.SetfsuidRetUid(65534)
		}
		_, err := CountFile(context.Background(), path, Limits{}, nil)
		refused <- err
	}()
	chunktest.WantKind(t, <-refused, fault.Usage)
}

func TestOpenFileCanceled(t *testing.T) {
	_, err := CountFile(canceled(t), chunktest.Temporary(t, chunktest.Numbered(3)), Limits{}, nil)
	chunktest.WantKind(t, err, fault.Canceled)
}

// TestFileShrinks: a file split by bytes is read while the job runs.
func TestFileShrinks(t *testing.T) {
	noLeaks(t)
	shrink(t, 16, 8, 8)
	path := chunktest.Temporary(t, chunktest.Numbered(100))
	source := open(t, path, cutOptions{Chunks: 50, Split: SplitBytes})
	defer closeSource(t, source)
	if _, err := source.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = source.Next(t.Context())
	}
	chunktest.WantKind(t, err, fault.Storage)
	if _, known := source.Total(); known {
		t.Error("the total is known of a file that could not be read")
	}
}

func TestFileCloseEarly(t *testing.T) {
	noLeaks(t)
	path := chunktest.Temporary(t, chunktest.Numbered(1000))
	for _, split := range []Split{SplitRecords, SplitBytes} {
		source := open(t, path, cutOptions{Chunks: 100, Split: split})
		if _, err := source.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		source.Release(chunk.Chunk{File: path})
		closeSource(t, source)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the input was removed: %v", err)
	}
}

// TestFindManyBorders: splitting must not be quadratic in the number of chunks.
func TestFindManyBorders(t *testing.T) {
	data := []byte(strings.Repeat("x\n", int(blockBytes)/2+100))
	source := open(t, chunktest.Temporary(t, data), cutOptions{Chunks: 2000})
	defer closeSource(t, source)
	chunks := drain(t, source)
	at := int64(0)
	for _, c := range chunks {
		if c.Offset != at || c.Length != 2*c.Records || c.First != at/2 || c.Line != at/2+1 {
			t.Fatalf("chunk %+v at byte %d", c, at)
		}
		at += c.Length
	}
	if at != int64(len(data)) {
		t.Errorf("chunks end at %d of %d", at, len(data))
	}
}
