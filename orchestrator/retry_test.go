package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// mending does what a record asks for: same, two lines, drop, or fail. Once repaired,
// it processes the failures like other records.
type mending struct {
	plugins.Base
	config struct{ Repaired bool }
}

func (m *mending) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	return config.Decode(&m.config)
}

func (m *mending) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		var record struct{ Do, Then string }
		if err := batch.Decode(i, &record); err != nil {
			return err
		}
		do := record.Do
		if do == "fail" && m.config.Repaired {
			do = record.Then
		}
		switch do {
		case "two":
			results.Lines(i, batch.Record(i), []byte(fmt.Sprintf(`{"again":%s}`, batch.Record(i))))
		case "drop":
			results.Drop(i)
		case "fail":
			results.Fail(i, "not yet")
		default:
			results.Unchanged(i)
		}
	}
	return nil
}

// TestRetryIsAsIfItHadNeverFailed: a job and a retry with a repaired kernel produce the
// same bytes as the repaired kernel alone.
func TestRetryIsAsIfItHadNeverFailed(t *testing.T) {
	type form struct {
		apart, parts, stream, array bool
		format                      string
	}
	forms := []form{
		{}, {apart: true, parts: true}, {apart: true, stream: true}, {parts: true, stream: true},
		{format: "jsonl.gz"}, {apart: true, parts: true, format: "jsonl.gz"}, {apart: true, format: "jsonl.zst"}, {parts: true, format: "jsonl.zst"}, {stream: true, format: "jsonl.zst"},
		{apart: true, format: "parquet"}, {parts: true, format: "parquet"}, {stream: true, format: "parquet"}, {format: "arrow"}, {parts: true, format: "arrow"},
		{array: true, apart: true}, {array: true, parts: true, stream: true}, {array: true, format: "jsonl.zst"},
	}
	if os.Getenv("GPURUN_TEST_ALL") != "" { // pairs that the others have
		forms = append(forms, []form{
			{apart: true}, {parts: true}, {stream: true}, {format: "parquet"}, {array: true},
		}...)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	var in strings.Builder
	in.WriteString(`{"id":-1,"do":"two","again":{}}` + "\n") // so that a column of this name may be chosen
	for i := range 150 {
		does := []string{"same", "two", "drop", "fail", "fail"}
		switch random.IntN(20) {
		case 0:
			in.WriteString("\n")
		case 1:
			in.WriteString("no JSON\n")
		case 2:
			in.WriteString("{\"up\":1,\"_error\":{}}\n")
		case 3:
			odd := []string{"\r\r\n", "\ufeff{}\n", "\ufeff\n", "{\"_raw\":\"x\",\"do\":\"fail\"}\r\n", "\"\xff\n"}
			in.WriteString(odd[random.IntN(len(odd))])
		}
		fmt.Fprintf(&in, "{\"id\":%d,\"do\":%q,\"then\":%q}\n", i,
			does[random.IntN(5)], []string{"same", "two", "drop", "fail"}[random.IntN(4)])
	}
	// What the repaired kernel computes depends on some of a form only.
	type kind struct {
		apart, array bool
		table        string
	}
	type alone struct {
		jobDir
		orchestrator.Report
		error
	}
	repaired := make(map[kind]func() alone)
	for _, form := range forms {
		k := kind{form.apart, form.array, tableFormat(form.format)}
		repaired[k] = sync.OnceValue(func() alone {
			d := newJobDir(t, in.String())
			want := d.config("test-mending")
			want.Batching.Size, want.Devices.GPUs, want.Kernel.Config = 7, "cpu:1", []byte(`{"Repaired":true}`)
			want.Output.Path = d.join("want.jsonl")
			if k.apart {
				want.Output.Errors = d.join("want-errors.jsonl")
			}
			if k.array {
				want.Output.Arrays = []orchestrator.OutputArray{{Column: "id", Path: d.join("want-id.npy")}}
			}
			if k.table != "" {
				want.Output.Path, want.Output.Columns = d.join("want."+k.table), mendedColumns
			}
			report, err := run(t, want)
			return alone{d, report, err}
		})
	}
	for _, form := range forms {
		t.Run(fmt.Sprintf("errors apart %t, parts %t, a stream %t, an array %t, %s", form.apart, form.parts, form.stream, form.array, form.format), func(t *testing.T) {
			t.Parallel()
			apart := form.apart
			d := newJobDir(t, in.String())
			config := d.config("test-mending")
			config.Batching.Size = 7
			wanted := repaired[kind{apart, form.array, tableFormat(form.format)}]()
			if wanted.error != nil {
				t.Fatal(wanted.error)
			}
			if apart {
				config.Output.Errors = d.join("errors.jsonl")
			}
			output := func() string { return d.read("out.jsonl") }
			if form.array {
				config.Output.Arrays = []orchestrator.OutputArray{{Column: "id", Path: d.join("id.npy")}}
			}
			wantOutput := func() string { return wanted.read("want.jsonl") }
			if form.format != "" {
				config.Output.Format, config.Output.Path = form.format, d.join("out."+form.format)
				output = func() string { return decoded(t, form.format, d.read("out."+form.format)) }
			}
			if form.parts {
				config.Output.Path, config.Output.PartBytes = d.join("out")+"/", 900
				output = func() string { return concatenated(d) }
			}
			if tableFormat(form.format) != "" {
				config.Output.Columns = mendedColumns
				rows := func(d jobDir, pattern string) string {
					paths, _ := filepath.Glob(d.join(pattern))
					text, _ := json.MarshalIndent(tableLines(t, paths...), "", " ")
					return string(text)
				}
				wantOutput, output = func() string { return rows(wanted.jobDir, "want."+form.format) }, func() string { return rows(d, "out*"+form.format) }
				if form.parts {
					output = func() string { return rows(d, "out/part-*") }
				}
			}
			if form.stream {
				config.Input.Path, config.Input.Stdin, config.Input.ChunkRecords = "-", strings.NewReader(in.String()), 50
			}
			mustRun(t, d, config)
			if err := os.Remove(d.join("in.jsonl")); err != nil { // it is not needed
				t.Fatal(err)
			}

			again := orchestrator.Config{Output: orchestrator.Output{Path: config.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:2"}, Batching: orchestrator.Batching{Size: 5}, Kernel: orchestrator.Kernel{Config: []byte(`{"Repaired":true}`)}}
			report, err := orchestrator.Retry(context.Background(), again)
			if err != nil {
				t.Fatal(err)
			}
			checkReport(t, report, nil)
			if diff := differences(wantOutput(), output()); diff != "" {
				t.Error(diff)
			}
			if apart {
				if diff := differences(wanted.read("want-errors.jsonl"), d.read("errors.jsonl")); diff != "" {
					t.Error(diff)
				}
			}
			for _, name := range []string{"id.npy", "id.mask.npy"} {
				if form.array && exists(wanted.join("want-"+name)) && wanted.read("want-"+name) != d.read(name) {
					t.Errorf("%s differs", name)
				}
			}
			if report.Succeeded != wanted.Succeeded || report.Failed != wanted.Failed || report.Dropped != wanted.Dropped {
				t.Errorf("report %+v, want %+v", report, wanted)
			}
			// The rest fails again, and nothing changes.
			again.Devices.GPUs = "cpu:1"
			if _, err := orchestrator.Retry(context.Background(), again); err != nil {
				t.Fatal(err)
			}
			if diff := differences(wantOutput(), output()); diff != "" {
				t.Errorf("the second retry: %s", diff)
			}
		})
	}
}

// mendedColumns are the columns of a table that test-mending writes.
var mendedColumns = []string{"id:int64", "do:string", "then:string", "again:json"}

// tableFormat is a format with columns; "" for another one.
func tableFormat(format string) string {
	if format == "parquet" || format == "arrow" {
		return format
	}
	return ""
}

// TestStreamInPieces: chunks of a stream that come back in pieces, at checkpoints and
// for sharing, keep their spool files until the last piece is done.
func TestStreamInPieces(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	input := numbered(2000)
	var out bytes.Buffer
	_, err := run(t, orchestrator.Config{
		Input: orchestrator.Input{Path: "-", Stdin: strings.NewReader(input), ChunkRecords: 700}, Output: orchestrator.Output{Path: "-", Stdout: &out},
		Kernel: orchestrator.Kernel{Name: "test-slow", Config: []byte(`{"Milliseconds":2}`)}, Devices: orchestrator.Devices{GPUs: "cpu:3"},
		Batching: orchestrator.Batching{Size: 10}, Resume: orchestrator.Resume{Checkpoint: 30e6},
	})
	if err != nil || out.String() != input {
		t.Errorf("%v, same %t", err, out.String() == input)
	}
}

// TestRetryOfChangedFailures: failed records are read from where they are kept, if that
// is unchanged.
func TestRetryOfChangedFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apart  bool
		change func(text string) string
	}{
		"another record": {false, func(text string) string { return strings.Replace(text, `"id":3`, `"di":3`, 1) }},
		"another mark":   {false, func(text string) string { return strings.Replace(text, "not yet", "not now", 1) }},
		"a line less":    {true, func(text string) string { return text[strings.Index(text, "\n")+1:] }},
		"a line more":    {true, func(text string) string { return text + "{}\n" }},
		"lines change place": {true, func(text string) string {
			return text[strings.Index(text, "\n")+1:] + text[:strings.Index(text, "\n")+1]
		}},
		"empty": {true, func(string) string { return "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, "{\"id\":1}\n{\"id\":2,\"do\":\"fail\"}\n{\"id\":3,\"do\":\"fail\",\"then\":\"fail\"}\n{\"id\":4}\n")
			config, kept := d.config("test-mending"), "out.jsonl"
			if c.apart {
				kept = "errors.jsonl"
				config.Output.Errors = d.join(kept)
			}
			mustRun(t, d, config)
			changed := c.change(d.read(kept))
			if err := os.WriteFile(d.join(kept), []byte(changed), 0o666); err != nil {
				t.Fatal(err)
			}
			output := d.read("out.jsonl")
			_, err := orchestrator.Retry(context.Background(), orchestrator.Config{Output: orchestrator.Output{Path: config.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}, Kernel: orchestrator.Kernel{Config: []byte(`{"Repaired":true}`)}})
			wantFault(t, err, fault.Conflict, kept, "was changed")
			if d.read("out.jsonl") != output || d.read(kept) != changed {
				t.Error("a file was changed")
			}
		})
	}
}

// TestRetryOfALostCopy: what an earlier retry copied, and a power loss damaged, is
// copied again; the records may exist only in the errors file that the retry replaces.
func TestRetryOfALostCopy(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]string{
		"empty":  "",
		"zeroed": "\ufeff" + strings.Repeat("\x00", len(`{"id":2,"do":"fail"}`)) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, "{\"id\":1}\n{\"id\":2,\"do\":\"fail\"}\n")
			config := d.config("test-mending")
			config.Output.Errors = d.join("errors.jsonl")
			mustRun(t, d, config)
			kept := d.read("errors.jsonl")
			if err := os.Mkdir(d.join("out.jsonl.gpurun/retry"), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(d.join("out.jsonl.gpurun/retry/in.jsonl"), []byte(copied), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := orchestrator.Retry(context.Background(), orchestrator.Config{Output: orchestrator.Output{Path: config.Output.Path}, Devices: orchestrator.Devices{GPUs: "cpu:1"}})
			if err != nil || d.read("errors.jsonl") != kept {
				t.Errorf("%v, errors are now %q", err, d.read("errors.jsonl"))
			}
		})
	}
}

// The report of a retry has its own times: that of loading is not the first run's.
func TestRetryReportsItsOwnTimes(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, "{\"do\":\"fail\"}\n{}\n")
	c := d.config("test-mending")
	first := mustRun(t, d, c)
	first.Load = time.Hour
	if err := first.WriteFile(d.join("out.jsonl.gpurun/report.json")); err != nil {
		t.Fatal(err)
	}
	c.Kernel.Config = []byte(`{"repaired":true}`)
	report, err := orchestrator.Retry(t.Context(), c)
	if err != nil || report.Retried != 1 || report.Load >= report.Elapsed || report.Computed != 1 {
		t.Errorf("%v; %d retried, %d computed in %s after loading for %s", err, report.Retried, report.Computed, report.Elapsed, report.Load)
	}
}
