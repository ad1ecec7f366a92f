package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// TestMain: started again, the test binary is a kernel.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	Init(map[string]func() plugins.Kernel{
		"members": func() plugins.Kernel { return members{} },
		"patient": func() plugins.Kernel { return &patient{} },
	})
	goleak.VerifyTestMain(m)
}

// members returns what it is told about its inputs, unless the record says otherwise:
// {"do":"exit"}.
type members struct{ plugins.Base }

func (members) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Inputs: []string{"do", "text"}}, nil
}

func (members) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		do, _ := batch.Member(i, "do")
		switch string(do) {
		case `"exit"`:
			os.Exit(3)
		case `"write"`:
			batch.Record(i)[0] = 'X'
		case `"error"`:
			return errors.New("no")
		case `"oom"`:
			return plugins.OutOfMemory(errors.New("no room"))
		case `"hang"`:
			time.Sleep(time.Hour)
		case `"slow"`:
			times(0)
			time.Sleep(30 * time.Millisecond)
		case `"short"`:
			return fmt.Errorf("%d values for %d records", batch.Len()-1, batch.Len())
		case `"kill"`:
			killSelf()
		case `"killed twice"`:
			if times(2) {
				killSelf()
			}
		case `"leak"`:
			if leaked++; leaked > 10 {
				return errors.New("MemoryError")
			}
		case `"huge"`:
			return errors.New("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 PiB for an array")
		case `"huge in Go"`:
			fmt.Fprintln(os.Stderr, "fatal error: runtime: out of memory")
			os.Exit(2)
		}
		if string(do) == `"count"` {
			results.Line(i, fmt.Appendf(nil, `{"batch":%d}`, batch.Len()))
			continue
		}
		if _, err := os.Stat("siege"); err == nil && times(8) {
			killSelf()
		}
		value, present := batch.Member(i, "text")
		results.Line(i, fmt.Appendf(nil, `{"text":%q,"present":%t}`, value, present))
	}
	return nil
}

var leaked int // records of this process

// times reports whether it was called at most n times, in all processes of a kernel's
// working folder.
func times(n int64) bool {
	file, err := os.OpenFile("times", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return false
	}
	defer file.Close()
	_, _ = file.WriteString("x")
	size, _ := file.Seek(0, io.SeekEnd)
	return size <= n
}

// killSelf is what a person, a scheduler or the OOM killer does to a process.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	time.Sleep(time.Minute)
}

// newWorker returns a worker with an open kernel, without a process for the worker.
func newWorker(t *testing.T, kernel string, batchSize int) *Worker {
	t.Helper()
	socket, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(socket) })
	setup := wire.Setup{
		Kernel: kernel, Dir: t.TempDir(), SocketDir: socket, OpenTimeout: time.Minute, Timeout: time.Minute,
		Records: wire.Records{BatchSize: batchSize, BatchBytes: 32 << 20, MaxBytes: 1 << 20, Step: kernel},
	}
	log := slog.New(slog.DiscardHandler)
	w := &Worker{conn: wire.NewConn(new(outbox)), setup: setup, log: log, pace: newPacer(), stops: newStops(), host: &kernelHost{
		setup: setup, builtins: []string{kernel}, log: log, limits: newLimits(setup),
	}}
	w.layouts, w.opinion.send = newLayouts(setup, nil), w.send
	w.sizes.records.want = int64(batchSize)
	t.Cleanup(func() { _ = w.host.close() })
	if _, err := w.host.describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.host.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// assign makes one chunk of these lines.
func assign(t *testing.T, lines string) wire.Assign {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "in.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o666); err != nil {
		t.Fatal(err)
	}
	count, err := input.CountFile(t.Context(), path, input.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := count.Cut(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Assign{Chunk: cut.Chunks[0], Part: filepath.Join(dir, "part")}
}

// outbox keeps what a worker sends.
type outbox struct {
	mu   sync.Mutex
	sent bytes.Buffer
}

func (o *outbox) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent.Write(data)
}

func (o *outbox) Read(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent.Read(data)
}

// dones returns the reports since the last call.
func (w *Worker) dones() (list []wire.Done) {
	for {
		message, err := w.conn.Receive()
		if err != nil {
			return list
		}
		if message.Done != nil {
			list = append(list, *message.Done)
		}
	}
}

// beginAll returns a loop that has begun chunks.
func (w *Worker) beginAll(ctx context.Context, chunks ...wire.Assign) (*loop, error) {
	c := newLoop(ctx, w)
	err := c.open()
	for _, a := range chunks {
		if err == nil {
			err = c.begin(a)
		}
	}
	return c, err
}

// finish takes turns until the first chunk has ended, and returns its last report.
func (c *loop) finish() (done wire.Done, err error) {
	for l := c.lanes[0]; len(c.lanes) > 0 && c.lanes[0] == l; {
		if err := c.endLanes(); err != nil {
			return done, err
		}
		if len(c.lanes) == 0 || c.lanes[0] != l {
			break
		}
		if _, err := c.turn(); err != nil {
			for _, l := range c.lanes {
				_ = l.close(err)
			}
			return done, err
		}
	}
	for _, done = range c.worker.dones() {
	}
	return done, nil
}

// compute begins a chunk and finishes it.
func (w *Worker) compute(ctx context.Context, assign wire.Assign) (wire.Done, error) {
	c, err := w.beginAll(ctx, assign)
	if err != nil {
		return wire.Done{}, err
	}
	return c.finish()
}
