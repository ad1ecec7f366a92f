package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/chain"
	"github.com/gpurun/gpurun/plugins/kerneltest"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// The test binary is every kernel of a chain: its first argument selects the kernel.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "kernel-") {
		plugins.Serve(stepKernel{name: strings.TrimPrefix(os.Args[1], "kernel-")})
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// stepKernel does what its name says.
type stepKernel struct {
	plugins.Base
	name string
}

func (k stepKernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	if k.name == "none" {
		return plugins.Info{}, errors.New("it describes nothing")
	}
	info := plugins.Info{BatchSize: len(k.name) * 10, NeedsGPU: k.name == "upper", MinMemory: 5, Frameworks: []string{"go"}, Inputs: []string{k.name}}
	return info, nil
}

func (k stepKernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.name == "sleep" {
		time.Sleep(sleepTime)
	}
	values := make([]int64, batch.Len())
	for i := range batch.Len() {
		record := batch.Record(i)
		values[i] = int64(len(record))
		switch {
		case k.name == "upper":
			results.Line(i, bytes.ToUpper(record))
		case k.name == "pick" && bytes.Contains(record, []byte("DROP")):
			results.Drop(i)
		case k.name == "pick" && bytes.Contains(record, []byte("FAIL")):
			results.Fail(i, "rejected")
		case k.name == "pick" && bytes.Contains(record, []byte("TWO")):
			results.Lines(i, []byte(`{"N":1}`), []byte(`{"N":2}`))
		case k.name == "pick" && bytes.Contains(record, []byte("BATCH")) && batch.Isolation() > 0:
			results.Raise(i, plugins.Detail(errors.New("no such record"), "its trace"))
		case k.name == "pick" && bytes.Contains(record, []byte("BATCH")):
			return errors.New("no such batch")
		case k.name == "pick" && bytes.Contains(record, []byte("EXIT")):
			os.Exit(3)
		case k.name == "pick", k.name == "sleep":
			results.Unchanged(i)
		case k.name == "early", k.name == "late":
			results.Line(i, k.meet(record))
		}
	}
	if k.name == "length" {
		results.Column(plugins.Int64s("length", 0, values))
	}
	return nil
}

// sleepTime is how long the step sleep takes for a batch.
const sleepTime = 5 * time.Millisecond

// meetVariable names the folder in which two steps meet.
const meetVariable = "CHAIN_TEST_MEET"

// meet keeps the step late at the record "first" until the step early has seen "second".
func (k stepKernel) meet(record []byte) []byte {
	second := filepath.Join(os.Getenv(meetVariable), "second")
	switch {
	case k.name == "early" && bytes.Contains(record, []byte("second")):
		_ = os.WriteFile(second, nil, 0o600)
	case k.name == "late" && bytes.Contains(record, []byte("first")):
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(second); err == nil {
				break
			} else if time.Now().After(end) {
				return []byte(`"they never met"`)
			}
		}
	}
	return record
}

func config(t testing.TB, names ...string) plugins.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var c resolve.ChainConfig
	for _, name := range names {
		c.Steps = append(c.Steps, resolve.ChainStep{Name: name, Path: self, Args: []string{"kernel-" + name}})
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestConformance(t *testing.T) {
	kerneltest.Run(t, chain.New, kerneltest.Options{Config: config(t, "pick", "length"), LargeBatch: 100})
}

func open(t testing.TB, names ...string) plugins.Kernel {
	t.Helper()
	k := chain.New()
	t.Cleanup(func() { _ = k.Close() })
	if err := k.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 1}, config(t, names...)); err != nil {
		t.Fatal(err)
	}
	return k
}

func call(t *testing.T, k plugins.Kernel, records ...string) ([]string, error) {
	t.Helper()
	list := make([][]byte, len(records))
	for i, record := range records {
		list[i] = []byte(record)
	}
	results, err := plugins.Call(t.Context(), k, plugins.NewBatch(list))
	if err != nil {
		return nil, err
	}
	var texts []string
	for i := range results.Len() {
		switch result := results.At(i); result.Verdict {
		case plugins.Lines:
			texts = append(texts, string(bytes.Join(result.Lines, []byte("+"))))
		case plugins.Failed:
			texts = append(texts, fmt.Sprintf("failed in %s: %s", result.Step, result.Message))
		default:
			texts = append(texts, result.Verdict.String())
		}
	}
	return texts, nil
}

func TestChain(t *testing.T) {
	k := open(t, "upper", "pick", "length")
	got, err := call(t, k, `{"a":"x"}`, `{"a":"drop"}`, `{"a":"fail"}`, `{"a":"two"}`, `"text"`)
	want := []string{
		`{"A":"X","length":9}`, "drop", "failed in pick: rejected", `{"N":1,"length":7}+{"N":2,"length":7}`,
		`failed in length: the record is not a JSON object: the kernel's column "length" cannot be added to it`,
	}
	if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = call(t, k, `{"a":"drop"}`); err != nil || got[0] != "drop" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestOverlap: a step computes a batch while the next one computes the previous batch.
func TestOverlap(t *testing.T) {
	t.Setenv(meetVariable, t.TempDir())
	k := open(t, "early", "late")
	var open []*plugins.Results
	for _, record := range []string{`"first"`, `"second"`} {
		open = append(open, plugins.Submit(t.Context(), k, plugins.NewBatch([][]byte{[]byte(record)})))
	}
	for i, want := range []string{`"first"`, `"second"`} {
		if err := open[i].Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := string(open[i].At(0).Lines[0]); got != want {
			t.Errorf("%s became %s", want, got)
		}
	}
}

// TestOrder: whatever the outcome of a batch, in whichever step, it completes before later
// ones, and only a crash fails others with it.
func TestOrder(t *testing.T) {
	k := open(t, "upper", "pick", "length")
	info, err := k.Describe(t.Context(), config(t, "upper", "pick", "length"))
	if err != nil || info.InFlight != 5 {
		t.Fatalf("%+v, %v", info, err)
	}
	texts := []string{"a", "drop", "batch", "b", "fail", "batch", "batch", "c", "two", "d"}
	want := []string{"lines", "drop", "no such batch", "lines", "fail", "no such batch", "no such batch", "lines", "lines", "lines"}
	var open []*plugins.Results
	for _, text := range texts {
		open = append(open, plugins.Submit(t.Context(), k, plugins.NewBatch([][]byte{fmt.Appendf(nil, `{"a":%q}`, text)})))
	}
	for i := range open {
		err := open[i].Wait(t.Context())
		for _, before := range open[:i] {
			select {
			case <-before.Done():
			default:
				t.Errorf("batch %d is over before one that came before it", i)
			}
		}
		got := ""
		if err != nil {
			got = fault.As(err).Message
		} else {
			got = open[i].At(0).Verdict.String()
		}
		if got != want[i] {
			t.Errorf("batch %d: %s, not %s", i, got, want[i])
		}
	}
}

// Failures of a whole batch, and crashes, name their step.
func TestFailures(t *testing.T) {
	for text, want := range map[string]struct {
		kind    fault.Kind
		message string
	}{
		"batch": {fault.Batch, "no such batch"},
		"exit":  {fault.Crash, "kernel process ended: exit status 3"},
	} {
		k := open(t, "upper", "pick")
		_, err := call(t, k, fmt.Sprintf(`{"a":%q}`, text))
		if e := fault.As(err); e == nil || e.Kind != want.kind || e.Message != want.message || e.Step != "pick" {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

// A step may isolate bad records: only those fail, with the name of the step.
func TestStepIsolatesRecords(t *testing.T) {
	k := open(t, "upper", "pick", "length")
	batch := plugins.NewBatch([][]byte{[]byte(`{"a":1}`), []byte(`{"a":"batch"}`), []byte(`{"a":2}`)})
	results, err := plugins.Call(t.Context(), k, batch.WithIsolation(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	raised := fault.As(results.At(1).Raised)
	if raised == nil || raised.Kind != fault.Batch || raised.Message != "no such record" || raised.Detail != "its trace" || raised.Step != "pick" {
		t.Errorf("got %+v", raised)
	}
	if line := results.At(2).Lines; len(line) != 1 || string(line[0]) != `{"A":2,"length":7}` || !results.Isolated() {
		t.Errorf("got %q", line)
	}
}

func TestDescribe(t *testing.T) {
	k := chain.New()
	defer k.Close()
	info, err := k.Describe(t.Context(), config(t, "upper", "pick"))
	if err != nil || info.BatchSize != 40 || !info.NeedsGPU || info.MinMemory != 10 || fmt.Sprint(info.Frameworks, info.Inputs) != "[go] [upper]" {
		t.Errorf("%+v, %v", info, err)
	}
	for _, test := range []struct {
		config plugins.Config
		want   string
	}{
		{config(t, "upper", "none"), "it describes nothing"},
		{plugins.Config(`{}`), "needs steps"},
		{plugins.Config(`{"steps":[{"name":"x","path":"/no/such"}]}`), "no such file"},
	} {
		k := chain.New()
		if _, err := k.Describe(t.Context(), test.config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, not %s", err, test.want)
		}
		_ = k.Close()
	}
}

// BenchmarkChain runs three steps that take the same time each, and reports the time per
// batch as a multiple of one step. Without overlap it would be 3.
func BenchmarkChain(b *testing.B) {
	k := open(b, "sleep", "sleep", "sleep")
	info, err := k.Describe(b.Context(), config(b, "sleep", "sleep", "sleep"))
	if err != nil {
		b.Fatal(err)
	}
	batch := plugins.NewBatch([][]byte{[]byte(`{"a":1}`)})
	var open []*plugins.Results
	for b.Loop() {
		open = append(open, plugins.Submit(b.Context(), k, batch))
		if len(open) == info.InFlight {
			if err := open[0].Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			open = open[1:]
		}
	}
	for _, results := range open {
		if err := results.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(sleepTime), "steps/batch")
}
