package kerneltest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/process"
)

// kernelVariable turns the test binary into a kernel program.
const kernelVariable = "GPURUN_TEST_KERNEL"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	switch os.Getenv(kernelVariable) {
	case "length":
		plugins.Serve(length{})
		os.Exit(0)
	case "panics":
		plugins.Serve(broken(func(plugins.Batch, *plugins.Results) error { panic("the kernel's own words") }))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// length is a correct kernel with columns.
type length struct{ plugins.Base }

func (length) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	lengths := make([]int64, batch.Len())
	means := make([]float32, 2*batch.Len())
	for i := range batch.Len() {
		var record struct{ Text string }
		if err := batch.Decode(i, &record); err != nil {
			results.Fail(i, "no text")
			continue
		}
		lengths[i] = int64(len(record.Text))
		means[2*i] = 1 / float32(1+len(record.Text))
	}
	results.Column(plugins.Int64s("length", 0, lengths))
	results.Column(plugins.Float32s("means", 2, means))
	return nil
}

// late is a correct kernel that answers after Process has returned.
type late struct {
	plugins.Base
	jobs chan func()
}

func (*late) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Name: "late", InFlight: 3}, nil
}

func (l *late) Open(context.Context, plugins.Device, plugins.Config) error {
	l.jobs = make(chan func(), 3)
	go func(jobs <-chan func()) {
		for job := range jobs {
			job()
		}
	}(l.jobs)
	return nil
}

func (l *late) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	finish := results.Defer()
	l.jobs <- func() {
		time.Sleep(time.Millisecond)
		for i := range batch.Len() {
			results.Line(i, batch.Record(i))
		}
		finish(nil)
	}
	return nil
}

func (l *late) Close() error {
	if l.jobs != nil {
		close(l.jobs)
		l.jobs = nil
	}
	return nil
}

func TestGoodKernels(t *testing.T) {
	t.Run("length", func(t *testing.T) {
		kerneltest.Run(t, func() plugins.Kernel { return length{} }, kerneltest.Options{})
	})
	t.Run("late", func(t *testing.T) {
		kerneltest.Run(t, func() plugins.Kernel { return &late{} }, kerneltest.Options{})
	})
}

func TestBinary(t *testing.T) {
	t.Setenv(kernelVariable, "length")
	for name, inline := range map[string]bool{"shared memory": false, "inline": true} {
		t.Run(name, func(t *testing.T) {
			command := self(t)
			command.Inline = inline
			kerneltest.RunBinary(t, command, kerneltest.Options{})
		})
	}
}

func self(t *testing.T) process.Command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return process.Command{Path: path, Env: os.Environ(), SocketDir: t.TempDir()}
}

// computes is the Process of an otherwise correct kernel.
type computes func(plugins.Batch, *plugins.Results) error

func broken(f computes) plugins.Kernel { return brokenKernel{process: f} }

type brokenKernel struct {
	plugins.Base
	process computes
}

func (b brokenKernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	return b.process(batch, results)
}

func each(f func(i int, record []byte, results *plugins.Results)) computes {
	return func(batch plugins.Batch, results *plugins.Results) error {
		for i := range batch.Len() {
			f(i, batch.Record(i), results)
		}
		return nil
	}
}

func unchanged(i int, _ []byte, results *plugins.Results) { results.Unchanged(i) }

// life is a kernel whose other methods misbehave.
type life struct {
	plugins.Base
	describe func() (plugins.Info, error)
	open     func() error
	close    func() error
	opened   bool
}

func (l *life) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	if l.describe != nil {
		return l.describe()
	}
	return plugins.Info{}, nil
}

func (l *life) Open(context.Context, plugins.Device, plugins.Config) error {
	l.opened = true
	if l.open != nil {
		return l.open()
	}
	return nil
}

func (l *life) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	return each(unchanged)(batch, results)
}

func (l *life) Close() error {
	if l.close != nil {
		return l.close()
	}
	return nil
}

// disorder completes the second of two batches first.
type disorder struct {
	plugins.Base
	held func(error)
}

func (*disorder) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: 2}, nil
}

func (d *disorder) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		results.Unchanged(i)
	}
	if d.held == nil {
		d.held = results.Defer()
		time.AfterFunc(200*time.Millisecond, func() { d.held(nil) })
	}
	return nil
}

func TestBadKernels(t *testing.T) {
	calls := 0
	tests := []struct {
		name   string
		kernel func() plugins.Kernel
		check  string // that must fail
		says   []string
	}{
		{"describes itself differently", func() plugins.Kernel {
			return &life{describe: func() (plugins.Info, error) { calls++; return plugins.Info{BatchSize: calls}, nil }}
		}, "describe", []string{"more than once"}},
		{"wishes nonsense", func() plugins.Kernel {
			return &life{describe: func() (plugins.Info, error) { return plugins.Info{InFlight: 1000}, nil }}
		}, "describe", []string{"InFlight is at most 64"}},
		{"needs a configuration", func() plugins.Kernel {
			return &life{describe: func() (plugins.Info, error) { return plugins.Info{}, errors.New("no model named") }}
		}, "describe", []string{"no model named", "Options.Config"}},
		{"cannot be opened", func() plugins.Kernel {
			return &life{open: func() error { return errors.New("no CUDA here") }}
		}, "open-close", []string{"no CUDA here", "Options.Device"}},
		{"close needs open", func() plugins.Kernel {
			l := &life{}
			l.close = func() error {
				if !l.opened {
					return errors.New("not open")
				}
				return nil
			}
			return l
		}, "close-unopened", []string{"not open", "make Close a no-op"}},
		{"panics when closed twice", func() plugins.Kernel {
			channel := make(chan int)
			return &life{close: func() error { close(channel); return nil }}
		}, "close-twice", []string{"close of closed channel"}},
		{"forgets a record", func() plugins.Kernel {
			return broken(each(func(i int, record []byte, results *plugins.Results) {
				if i != 2 {
					results.Unchanged(i)
				}
			}))
		}, "verdicts", []string{"6 of 7 records", "record 2"}},
		{"two verdicts", func() plugins.Kernel {
			return broken(each(func(i int, _ []byte, results *plugins.Results) {
				results.Unchanged(i)
				results.Drop(i)
			}))
		}, "verdicts", []string{"two verdicts"}},
		{"fails batches", func() plugins.Kernel {
			return broken(func(plugins.Batch, *plugins.Results) error { return plugins.Detail(errors.New("no"), "a trace") })
		}, "verdicts", []string{"results.Fail(i, message)", "a trace"}},
		{"fails everything", func() plugins.Kernel {
			return broken(each(func(i int, _ []byte, results *plugins.Results) { results.Fail(i, "no member x") }))
		}, "useful", []string{"no member x", "Options.Records"}},
		{"writes no JSON", func() plugins.Kernel {
			return broken(each(func(i int, _ []byte, results *plugins.Results) { results.Line(i, []byte("{'a':1}")) }))
		}, "valid-json", []string{"{'a':1}", "one JSON value"}},
		{"writes line breaks", func() plugins.Kernel {
			return broken(each(func(i int, _ []byte, results *plugins.Results) { results.Line(i, []byte("{\n}")) }))
		}, "valid-json", []string{"line break"}},
		{"bad column", func() plugins.Kernel {
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				results.Column(plugins.JSON("made", slices.Repeat([][]byte{[]byte("nan")}, batch.Len())))
				return nil
			})
		}, "valid-json", []string{`in column "made"`}},
		{"one at a time is too few", func() plugins.Kernel {
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				if batch.Len() == 1 {
					return errors.New("division by zero")
				}
				return each(unchanged)(batch, results)
			})
		}, "batch-of-one", []string{"division by zero"}},
		{"counts", func() plugins.Kernel {
			n := 0
			return broken(each(func(i int, _ []byte, results *plugins.Results) {
				n++
				results.Line(i, fmt.Appendf(nil, "%d", n))
			}))
		}, "repeatable", []string{"the second time", "seed"}},
		{"depends on neighbors", func() plugins.Kernel {
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				for i := range batch.Len() {
					results.Line(i, fmt.Appendf(nil, "%d", batch.Len()))
				}
				return nil
			})
		}, "alone-or-together", []string{"Options.Neighbors"}},
		{"sorts", func() plugins.Kernel {
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				var records [][]byte
				for i := range batch.Len() {
					records = append(records, batch.Record(i))
				}
				slices.SortFunc(records, bytes.Compare)
				for i, record := range records {
					results.Line(i, record)
				}
				return nil
			})
		}, "order", []string{"by their index"}},
		{"has a fixed buffer", func() plugins.Kernel {
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				if batch.Len() > 256 {
					return errors.New("the batch is too large")
				}
				return each(unchanged)(batch, results)
			})
		}, "large-batch", []string{"a batch of 1000 records"}},
		{"knows ASCII", func() plugins.Kernel {
			return broken(each(func(i int, record []byte, results *plugins.Results) {
				if strings.ContainsFunc(string(record), func(r rune) bool { return r > 127 }) {
					return
				}
				results.Unchanged(i)
			}))
		}, "unicode", []string{"many scripts"}},
		{"is spoilt by a large record", func() plugins.Kernel {
			spoilt := false
			return broken(func(batch plugins.Batch, results *plugins.Results) error {
				spoilt = spoilt || len(batch.Record(0)) > 1<<19
				if spoilt {
					return errors.New("buffer overrun")
				}
				return each(unchanged)(batch, results)
			})
		}, "large-record", []string{"after a record of a megabyte", "buffer overrun"}},
		{"panics at odd records", func() plugins.Kernel {
			return broken(each(func(i int, record []byte, results *plugins.Results) {
				var v any
				_ = json.Unmarshal(record, &v)
				_ = v.(map[string]any)
				results.Unchanged(i)
			}))
		}, "odd-records", []string{"panicked", "Return an error instead"}},
		{"writes into the batch", func() plugins.Kernel {
			return broken(each(func(i int, record []byte, results *plugins.Results) {
				copy(record, bytes.ToUpper(record))
				results.Line(i, record)
			}))
		}, "memory", []string{"bytes.Clone"}},
		{"keeps the batch", func() plugins.Kernel {
			kept := make(map[int][]byte)
			return broken(each(func(i int, record []byte, results *plugins.Results) {
				if len(kept) < 7 {
					kept[i] = record
				}
				line, _ := json.Marshal(string(kept[i]))
				results.Line(i, line)
			}))
		}, "memory", []string{"Copy whatever the kernel keeps"}},
		{"completes out of order", func() plugins.Kernel { return &disorder{} }, "in-flight", []string{"in the order"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			session := kerneltest.NewSession(kerneltest.Direct(test.kernel), kerneltest.Options{})
			defer session.Close()
			for _, check := range kerneltest.Checks() {
				if check.Name != test.check {
					continue
				}
				outcome := session.Run(t.Context(), check)
				if outcome.Err == nil {
					t.Fatal("it passed")
				}
				var failure *kerneltest.Failure
				if !errors.As(outcome.Err, &failure) || len(failure.Advice) == 0 || failure.Advice[0].String() == "" {
					t.Errorf("no advice: %v", outcome.Err)
				}
				for _, word := range test.says {
					if !strings.Contains(outcome.String(), word) {
						t.Errorf("no %q in:\n%s", word, outcome)
					}
				}
			}
		})
	}
}

// A hang is reported when the timeout expires.
func TestHang(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	session := kerneltest.NewSession(kerneltest.Direct(func() plugins.Kernel {
		return broken(func(plugins.Batch, *plugins.Results) error { <-release; return errors.New("released") })
	}), kerneltest.Options{Timeout: 50 * time.Millisecond})
	defer session.Close()
	outcome := session.Run(t.Context(), find(t, "verdicts"))
	if outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "within 50ms") {
		t.Fatalf("outcome: %s", outcome)
	}
}

// A crash of a kernel program is distinguished from an error, and the next check gets a
// new process.
func TestDyingBinary(t *testing.T) {
	t.Setenv(kernelVariable, "panics")
	session := kerneltest.NewSession(kerneltest.Binary(self(t)), kerneltest.Options{})
	defer session.Close()
	for _, name := range []string{"verdicts", "odd-records"} {
		outcome := session.Run(t.Context(), find(t, name))
		if outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "the kernel's own words") {
			t.Errorf("outcome: %s", outcome)
		}
	}
}

func TestNoKernel(t *testing.T) {
	session := kerneltest.NewSession(kerneltest.Binary(process.Command{Path: "/bin/true"}), kerneltest.Options{})
	defer session.Close()
	if outcome := session.Run(t.Context(), find(t, "verdicts")); outcome.Err == nil {
		t.Error("it passed")
	}
	if outcome := session.Run(t.Context(), find(t, "order")); outcome.Skipped == "" {
		t.Errorf("not skipped: %s", outcome)
	}
}

func find(t *testing.T, name string) kerneltest.Check {
	t.Helper()
	for _, check := range kerneltest.Checks() {
		if check.Name == name {
			return check
		}
	}
	t.Fatalf("there is no check %q", name)
	return kerneltest.Check{}
}

func TestNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, check := range kerneltest.Checks() {
		if seen[check.Name] || check.About == "" {
			t.Errorf("check %+v", check)
		}
		seen[check.Name] = true
	}
}
