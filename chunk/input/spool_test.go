package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// spool returns the source of a stream, which is copied to files, one chunk each.
func spool(r io.Reader, options Options) (*Source, error) {
	open := func(context.Context) (format.Lines, error) {
		return format.Lines{ReadCloser: io.NopCloser(r), First: 1}, nil
	}
	return Open([]Section{{Files: []SectionFile{{Open: open}}, Once: true}}, options)
}

func openSpool(t testing.TB, r io.Reader, options Options) *Source {
	t.Helper()
	if options.Dir == "" {
		options.Dir = filepath.Join(t.TempDir(), "spool")
	}
	source, err := spool(r, options)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// withoutOffset ignores offsets: a spooled record is elsewhere than in the stream.
var withoutOffset = cmpopts.IgnoreFields(chunktest.Line{}, "Offset")

// spooled reads all records of a stream and releases each chunk.
func spooled(t *testing.T, source *Source) (all []chunktest.Line, chunks []chunk.Chunk) {
	t.Helper()
	for {
		c, err := source.Next(t.Context())
		if err == io.EOF {
			return all, chunks
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := readChunk(c, plain)
		if err != nil {
			t.Fatal(err)
		}
		all, chunks = append(all, got...), append(chunks, c)
		source.Release(c)
	}
}

// TestSpool: a stream has the same records as a file, however it arrives.
func TestSpool(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	pieces := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader,
		"half": iotest.HalfReader, "error with data": iotest.DataErrReader,
	}
	inputs := make([][]byte, 0, 100)
	for _, s := range chunktest.Nasty {
		inputs = append(inputs, []byte(s))
	}
	for range 30 {
		inputs = append(inputs, chunktest.Input(r, 40))
	}
	for _, data := range inputs {
		for name, cut := range pieces {
			want, blank := chunktest.Records(data)
			chunkRecords := 1 + r.Int64N(10)
			source := openSpool(t, cut(bytes.NewReader(data)), Options{ChunkRecords: chunkRecords})
			got, chunks := spooled(t, source)
			if diff := cmp.Diff(want, got, withoutOffset); diff != "" {
				t.Errorf("records: %s", diff)
			}
			for i, c := range chunks {
				if c.Records > chunkRecords || c.Records < chunkRecords && i < len(chunks)-1 {
					t.Errorf("chunk %d of %d has %d records, want %d", i, len(chunks), c.Records, chunkRecords)
				}
			}
			if source.Blank() != blank {
				t.Errorf("blank lines %d, want %d", source.Blank(), blank)
			}
			if total, known := source.Total(); !known || total != int64(len(want)) {
				t.Errorf("total %d (%v), want %d", total, known, len(want))
			}
			closeSource(t, source)
			if t.Failed() {
				t.Fatalf("%q by %s in chunks of %d", data, name, chunkRecords)
			}
		}
	}
}

// TestSpoolLongLines: a line longer than the read buffer arrives in pieces.
func TestSpoolLongLines(t *testing.T) {
	noLeaks(t)
	long, blank := strings.Repeat("x", 5<<18), strings.Repeat(" ", 5<<18)
	for _, end := range []string{"\n", "\r\n", ""} {
		data := []byte("a\n" + long + "\n" + blank + "\n" + blank + "b\n" + blank + long + end)
		want, blanks := chunktest.Records(data)
		source := openSpool(t, bytes.NewReader(data), Options{ChunkRecords: 2})
		got, _ := spooled(t, source)
		if !cmp.Equal(want, got, withoutOffset) || source.Blank() != blanks {
			t.Errorf("end %q: %d records, %d blank lines", end, len(got), source.Blank())
		}
		closeSource(t, source)
	}
}

func TestSpoolLimits(t *testing.T) {
	noLeaks(t)
	r := chunktest.Seeded(t)
	for range 200 {
		data := chunktest.Input(r, 30)
		all, _ := chunktest.Records(data)
		limits := Limits{Offset: r.Int64N(int64(len(all)) + 3), Limit: r.Int64N(int64(len(all)) + 3)}
		if r.IntN(8) == 0 {
			limits.Limit = math.MaxInt64
		}
		source := openSpool(t, bytes.NewReader(data), Options{Limits: limits, ChunkRecords: 1 + r.Int64N(5)})
		want := limited(all, limits)
		got, _ := spooled(t, source)
		if diff := cmp.Diff(want, got, withoutOffset); diff != "" {
			t.Fatalf("%q, %+v: %s", data, limits, diff)
		}
		if total, known := source.Total(); !known || total != int64(len(want)) {
			t.Fatalf("total %d (%v), want %d", total, known, len(want))
		}
		closeSource(t, source)
	}
}

// TestSpoolLimitEndsStream: after the limit, the spool does not wait for the stream.
func TestSpoolLimitEndsStream(t *testing.T) {
	noLeaks(t)
	r, w := io.Pipe()
	defer w.Close()
	source := openSpool(t, r, Options{Limits: Limits{Limit: 2}, ChunkRecords: 10})
	defer closeSource(t, source)
	go fmt.Fprint(w, "1\n2\n3\n")
	got, _ := spooled(t, source)
	if len(got) != 2 {
		t.Errorf("%d records, want 2", len(got))
	}
}

// TestSpoolFlush: when a stream pauses, what it has sent is computed.
func TestSpoolFlush(t *testing.T) {
	for _, sent := range []string{"1\n", "1\n2", "1\n\n \n", "\n1\n", "\xef\xbb\xbf1\n", "\xef\n"} {
		t.Run(fmt.Sprintf("%q", sent), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				source := openSpool(t, r, Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 10, Flush: time.Minute})
				if _, err := io.WriteString(w, sent); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				c, err := source.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); c.Records != 1 || waited != time.Minute {
					t.Errorf("%d records after %v", c.Records, waited)
				}
				// The rest follows normally.
				if _, err := io.WriteString(w, "3\n4"); err != nil {
					t.Fatal(err)
				}
				w.Close()
				all, err := readChunk(c, plain)
				if err != nil {
					t.Fatal(err)
				}
				rest, _ := spooled(t, source)
				want, _ := chunktest.Records([]byte(sent + "3\n4"))
				if diff := cmp.Diff(want, append(all, rest...), withoutOffset); diff != "" {
					t.Error(diff)
				}
				closeSource(t, source)
			})
		})
	}
}

// TestSpoolFlushLater: the flush time starts with the first record of each chunk.
func TestSpoolFlushLater(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		source := openSpool(t, r, Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 3, Flush: time.Minute})
		began := time.Now()
		go func() {
			for i := range 5 { // at 0 s, 25 s, 50 s; 75 s, 100 s
				fmt.Fprintf(w, "%d\n", i)
				time.Sleep(25 * time.Second)
			}
			time.Sleep(time.Hour)
			w.Close()
		}()
		for _, want := range []struct {
			records int64
			at      time.Duration
		}{{3, 50 * time.Second}, {2, 135 * time.Second}} {
			c, err := source.Next(t.Context())
			if err != nil || c.Records != want.records || time.Since(began) != want.at {
				t.Errorf("%d records after %v (%v), want %d after %v", c.Records, time.Since(began), err, want.records, want.at)
			}
		}
		if _, err := source.Next(t.Context()); err != io.EOF {
			t.Error(err)
		}
		closeSource(t, source)
	})
}

// endless returns lines forever and counts them.
type endless struct{ lines atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	return copy(p, fmt.Sprintf("%d\n", e.lines.Add(1))), nil
}

// TestSpoolFullChunks: a stream that waits for the workers is not a paused stream: its
// chunks are full, however long that takes.
func TestSpoolFullChunks(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		data := strings.Repeat(strings.Repeat("x", 99)+"\n", 100_000)
		source := openSpool(t, strings.NewReader(data), Options{Dir: filepath.Join(dir, "spool"), ChunkRecords: 777, Flush: time.Second, Ahead: 2})
		for left := int64(100_000); left > 0; {
			c, err := source.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.Records != min(777, left) {
				t.Errorf("a chunk of %d records, with %d left", c.Records, left)
			}
			left -= c.Records
			source.Release(c)
			time.Sleep(600 * time.Millisecond)
		}
		closeSource(t, source)
	})
}

// TestSpoolReady: Ready reports whether Next would wait.
func TestSpoolReady(t *testing.T) {
	noLeaks(t)
	r, w := io.Pipe()
	source := openSpool(t, r, Options{ChunkRecords: 1})
	awaitReady := func() {
		for deadline := time.Now().Add(20 * time.Second); !source.Ready(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it is never ready")
			}
		}
	}
	if source.Ready() {
		t.Error("ready without a chunk")
	}
	fmt.Fprint(w, "1\n")
	awaitReady()
	if c, err := source.Next(t.Context()); err != nil || c.Records != 1 || source.Ready() {
		t.Errorf("%+v, %v", c, err)
	}
	w.Close()
	awaitReady()
	if _, err := source.Next(t.Context()); err != io.EOF {
		t.Errorf("%v", err)
	}
	closeSource(t, source)
}

// TestSpoolBackpressure: a fast producer waits, so the disk does not fill up.
func TestSpoolBackpressure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	synctest.Test(t, func(t *testing.T) {
		stream := &endless{}
		source := openSpool(t, stream, Options{Dir: dir, ChunkRecords: 5, Ahead: 2})
		var held []chunk.Chunk
		for range 10 {
			synctest.Wait() // until all others wait for this goroutine
			if got, most := len(chunktest.Files(t, dir)), len(held)+3; got != most {
				t.Errorf("%d spool files with %d chunks held, want %d", got, len(held), most)
			}
			c, err := source.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if held = append(held, c); len(held) == 4 {
				for _, c := range held {
					source.Release(c)
				}
				held = nil
			}
		}
		if got := stream.lines.Load(); got > 11*5+3*5+64+2 { // returned, spooled, and in transit
			t.Errorf("%d lines read", got)
		}
		closeSource(t, source)
		if got := chunktest.Files(t, dir); len(got) > 0 {
			t.Errorf("files left: %v", got)
		}
	})
}

func TestSpoolReadFails(t *testing.T) {
	noLeaks(t)
	broken := errors.New("broken")
	for name, r := range map[string]io.Reader{
		"at once":   iotest.ErrReader(broken),
		"later":     io.MultiReader(strings.NewReader("1\n2\n3\n"), iotest.ErrReader(broken)),
		"in a line": io.MultiReader(strings.NewReader("1\n2\n3"), iotest.ErrReader(broken)),
		// A reader need not return its error twice.
		"once, early": &failOnce{data: "1", err: broken},
		"once, later": &failOnce{data: "1\n2\n3\n4", err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			source := openSpool(t, r, Options{ChunkRecords: 1})
			defer closeSource(t, source)
			var err error
			for err == nil {
				_, err = source.Next(t.Context())
			}
			chunktest.WantKind(t, err, fault.Storage)
			if !errors.Is(err, broken) {
				t.Errorf("error %v does not lead to its cause", err)
			}
			if _, known := source.Total(); known {
				t.Error("the total of a broken stream is known")
			}
		})
	}
}

// failOnce returns its data, one error, and then io.EOF.
type failOnce struct {
	data string
	err  error
}

func (f *failOnce) Read(p []byte) (int, error) {
	if f.data != "" {
		n := copy(p, f.data)
		f.data = f.data[n:]
		return n, nil
	}
	err := f.err
	f.err = io.EOF
	return 0, err
}

// TestSpoolCloseBlocked: Close does not wait for a Read that does not return. The Read
// itself is abandoned until it does.
func TestSpoolCloseBlocked(t *testing.T) {
	noLeaks(t)
	for _, sent := range []string{"", "1\n", "1\n2"} {
		dir := filepath.Join(t.TempDir(), "spool")
		r, w := io.Pipe()
		source := openSpool(t, r, Options{Dir: dir, ChunkRecords: 1})
		if _, err := io.WriteString(w, sent); err != nil {
			t.Fatal(err)
		}
		if sent != "" {
			if _, err := source.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		closed := make(chan error, 1)
		go func() { closed <- source.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Close hangs")
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder still exists: %v", err)
		}
		w.Close()
	}
}

// TestSpoolCloseFull: Close does not wait for a consumer that takes nothing either.
func TestSpoolCloseFull(t *testing.T) {
	noLeaks(t)
	source := openSpool(t, &endless{}, Options{ChunkRecords: 1, Ahead: 1})
	if _, err := source.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeSource(t, source)
	closeSource(t, source)
}

func TestSpoolNextCanceled(t *testing.T) {
	noLeaks(t)
	r, w := io.Pipe()
	defer w.Close()
	source := openSpool(t, r, Options{ChunkRecords: 1})
	defer closeSource(t, source)
	if _, err := source.Next(canceled(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestSpoolRelease(t *testing.T) {
	noLeaks(t)
	dir := filepath.Join(t.TempDir(), "spool")
	source := openSpool(t, strings.NewReader("1\n2\n3\n \n\n"), Options{Dir: dir, ChunkRecords: 1})
	chunks := drain(t, source)
	for i, c := range chunks {
		if got := len(chunktest.Files(t, dir)); got != len(chunks)-i { // blank lines leave no file
			t.Errorf("%d files with %d chunks to release", got, len(chunks)-i)
		}
		source.Release(c)
		source.Release(c) // repeating it is safe
	}
	closeSource(t, source)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder still exists: %v", err)
	}
}

// TestSpoolBytes: a spool file has a size limit, however many records are wanted.
func TestSpoolBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("70 MB")
	}
	noLeaks(t)
	line := strings.Repeat("x", 1<<20-1) + "\n"
	r := io.LimitReader(&repeat{line: line}, 70<<20)
	source := openSpool(t, r, Options{ChunkRecords: 1 << 40})
	if diff := cmp.Diff([]int64{64, 6}, sizes(drain(t, source))); diff != "" {
		t.Error(diff)
	}
	closeSource(t, source)
}

type repeat struct {
	line string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.line[r.at:])
	r.at = (r.at + n) % len(r.line)
	return n, nil
}

func TestSpoolNoFolder(t *testing.T) {
	noLeaks(t)
	file := chunktest.Write(t, filepath.Join(t.TempDir(), "file"), nil)
	_, err := spool(strings.NewReader("1\n"), Options{Dir: filepath.Join(file, "spool")})
	chunktest.WantKind(t, err, fault.Storage)
}

// TestSpoolStorageFails: the folder disappears, or the disk is full.
func TestSpoolStorageFails(t *testing.T) {
	noLeaks(t)
	for name, c := range map[string]struct {
		dir    func(t *testing.T) string
		damage func(dir string) error
	}{
		"folder missing": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "spool") }, os.RemoveAll},
		"disk full":      {chunktest.TinyDisk, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir(t)
			r, w := io.Pipe()
			source := openSpool(t, r, Options{Dir: dir, ChunkRecords: 1000})
			if c.damage != nil {
				if err := c.damage(dir); err != nil {
					t.Fatal(err)
				}
			}
			go func() {
				for range 1000 {
					if _, err := io.WriteString(w, strings.Repeat("x", 1023)+"\n"); err != nil {
						return
					}
				}
				w.Close()
			}()
			_, err := source.Next(t.Context())
			chunktest.WantKind(t, err, fault.Storage)
			r.Close()
			_ = source.Close() // a mount point cannot be removed
		})
	}
}
