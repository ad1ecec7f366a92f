package progress

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

var update = flag.Bool("update", false, "write the golden files anew")

func workers(n int) []orchestrator.WorkerReport {
	var workers []orchestrator.WorkerReport
	for i, slot := range slots("GPU %d", n) {
		workers = append(workers, orchestrator.WorkerReport{
			Slot: i, Device: slot.Name, Records: 250_000 - int64(i)*249_999/max(1, int64(n-1)), Batches: 1954 - int64(i)*1953/max(1, int64(n-1)),
			Rate: 88_000 / float64(1+i), BusyShare: 1 - float64(i)*0.11,
		})
	}
	return workers
}

// testHints stand for the flags and commands of a program.
type testHints struct{}

func (testHints) Hint(code orchestrator.Code, value string) string {
	if code == "" && value == "" {
		return ""
	}
	return " [" + strings.TrimSpace(string(code)+" "+value) + "]"
}

func (testHints) Retry(r orchestrator.Report) string {
	if r.Streamed {
		return ""
	}
	return "gpurun retry " + r.Output
}

func TestWriteReport(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	folder, err := filepath.Abs("out.jsonl.gpurun")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "output.partial"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	fine := orchestrator.Report{
		Output: "out.jsonl", Folder: folder, Elapsed: 3420 * time.Millisecond,
		In: 1_000_000, Succeeded: 1_000_000, Rate: 292_397.6, Workers: workers(4),
	}
	for name, change := range map[string]func(r *orchestrator.Report){
		"fine": func(*orchestrator.Report) {},
		"start": func(r *orchestrator.Report) {
			imports := orchestrator.Imports{Took: 13 * time.Second, Slowest: []orchestrator.Import{{Name: "transformers", Took: 9700 * time.Millisecond}, {Name: "torch", Took: 3400 * time.Millisecond}}}
			r.Start = &orchestrator.StartReport{
				First:   orchestrator.Start{Importing: 13100 * time.Millisecond, Loading: 500 * time.Millisecond, FirstBatch: time.Second, Imports: imports},
				Further: 3, Typical: &orchestrator.Start{Importing: 80 * time.Millisecond, Loading: 700 * time.Millisecond, FirstBatch: 900 * time.Millisecond},
			}
		},
		"blank":      func(r *orchestrator.Report) { r.Blank = 1; r.Succeeded, r.Dropped = 999_000, 1000 },
		"one_record": func(r *orchestrator.Report) { r.In, r.Succeeded, r.Workers = 1, 1, workers(1) },
		"zero":       func(r *orchestrator.Report) { r.In, r.Succeeded, r.Rate = 0, 0, 0 },
		"failed": func(r *orchestrator.Report) {
			r.Succeeded, r.Failed = 998_749, 1251
			r.Failures = []orchestrator.FailureReport{
				{Kind: "record", KindStats: chunk.KindStats{Count: 1250, Line: 7, Example: "kernel returned invalid JSON: invalid character 'o' at byte 1"}},
				{Kind: "crash", KindStats: chunk.KindStats{Count: 1, Line: 123_456, Example: "\x1b[31mTraceback\x1b[0m (most recent call last):\n" + string(bytes.Repeat([]byte("deep "), 100))}},
			}
		},
		"failed_apart": func(r *orchestrator.Report) {
			r.Succeeded, r.Failed, r.Errors = 999_999, 1, "errors.jsonl"
			r.Failures = []orchestrator.FailureReport{{Kind: "record", KindStats: chunk.KindStats{Count: 1, Line: 1, Example: "no text"}}}
		},
		"failed_upstream": func(r *orchestrator.Report) {
			r.Succeeded, r.Failed = 999_998, 2
			r.Failures = []orchestrator.FailureReport{{Kind: "upstream", KindStats: chunk.KindStats{Count: 2, Line: 1, Example: "the record already has an _error in the input"}}}
		},
		"failed_both": func(r *orchestrator.Report) {
			r.Succeeded, r.Failed = 999_997, 3
			r.Failures = []orchestrator.FailureReport{{Kind: "record", KindStats: chunk.KindStats{Count: 2, Line: 9, Example: "no text"}}, {Kind: "upstream", KindStats: chunk.KindStats{Count: 1, Line: 1, Example: "the record already has an _error in the input"}}}
		},
		"interrupted": func(r *orchestrator.Report) {
			r.Succeeded, r.Pending = 700_000, 300_000
			r.Stop = fault.New(fault.Canceled, "stopped on request")
		},
		"uncounted": func(r *orchestrator.Report) {
			r.In, r.Succeeded, r.Pending, r.Uncounted = 702_000, 700_000, 2_000, true
			r.Stop = fault.New(fault.Canceled, "stopped on request")
		},
		"stream": func(r *orchestrator.Report) {
			r.Input, r.Output, r.Streamed, r.Folder = "-", "-", true, "/home/me/.local/state/gpurun/jobs/20260301-120000-1-abcdef"
			r.Succeeded, r.Failed = 999_999, 1
			r.Failures = []orchestrator.FailureReport{{Kind: "record", KindStats: chunk.KindStats{Count: 1, Line: 1, Example: "no text"}}}
		},
		"stream_interrupted": func(r *orchestrator.Report) {
			r.Streamed, r.Output, r.Folder, r.Succeeded, r.Pending = true, "-", "/home/me/.local/state/gpurun/jobs/20260301-120000-1-abcdef", 700_000, 300_000
			r.Stop = fault.New(fault.Canceled, "stopped on request")
		},
		"retired": func(r *orchestrator.Report) {
			r.Workers[1].Restarts, r.Workers[1].Lost = 1, 2
			r.Workers[3].Restarts, r.Workers[3].Lost, r.Workers[3].Retired = 3, 1, true
			r.Workers[3].Records, r.Workers[3].Rate, r.Workers[3].Batches, r.Workers[3].BusyShare = 0, 0, 0, 0
		},
		"no_device_left": func(r *orchestrator.Report) {
			r.Succeeded, r.Pending = 700_000, 300_000
			r.Stop = fault.New(fault.NoDevice, "no device is left")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fine
			r.Workers = append([]orchestrator.WorkerReport{}, fine.Workers...)
			change(&r)
			r.Causes, r.Computed = r.Failures, r.In-r.Pending
			var out bytes.Buffer
			WriteReport(&out, r, testHints{})
			golden := filepath.Join(testdata, "report_"+name+".txt")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("-want +got; write the golden files anew with -update:\n%s", diff)
			}
		})
	}
}

// The first line counts only what this run computed in the time shown.
func TestReportOfMore(t *testing.T) {
	for _, test := range []struct {
		report orchestrator.Report
		want   string
	}{
		{orchestrator.Report{In: 1000, Computed: 1000}, "1,000 records in 2.0s"},
		{orchestrator.Report{In: 1000, Pending: 100, Computed: 900}, "900 records in 2.0s"},
		{orchestrator.Report{In: 1000, Resumed: 400, Computed: 600}, "600 more records in 2.0s"},
		{orchestrator.Report{In: 1000, Resumed: 400, Pending: 599, Computed: 1}, "1 more record in 2.0s"},
		{orchestrator.Report{In: 1000, Retried: 3}, "retried 3 failed records in 2.0s"},
		{orchestrator.Report{In: 1000, Pending: 1000, Stop: &fault.Error{}}, "no records computed in 2.0s"},
		{orchestrator.Report{In: 1000, Resumed: 1000, Computed: 600}, "600 more records in 2.0s"}, // finished already, by a resumed run
		{orchestrator.Report{In: 1000, Resumed: 1000, Computed: 1000}, "1,000 records in 2.0s"},
		{orchestrator.Report{In: 1000, Pending: 1000, Answers: 300, Computed: 300, Stop: &fault.Error{}}, "300 records in 2.0s"},
		{orchestrator.Report{In: 1000, ResumedAnswers: 300, Computed: 700}, "700 more records in 2.0s"},
	} {
		test.report.Elapsed = 2 * time.Second
		test.report.Rate = 1
		var out strings.Builder
		WriteReport(&out, test.report, testHints{})
		if !strings.HasPrefix(out.String(), "\n"+test.want+" (") {
			t.Errorf("%q, want %s", out.String(), test.want)
		}
	}
}

// A run that found everything done has no rate.
func TestReportOfNothing(t *testing.T) {
	var out strings.Builder
	WriteReport(&out, orchestrator.Report{In: 394, Succeeded: 394, Resumed: 394, Elapsed: 275 * time.Millisecond}, testHints{})
	if want := "\nnothing left to do: 394 records already done\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// Answers that are logged are not lost: a stopped job, its report and the next run say so.
func TestReportOfAnswers(t *testing.T) {
	r := orchestrator.Report{In: 1500, Pending: 1400, Succeeded: 100, Answers: 573, Computed: 673, Stop: &fault.Error{Message: "stopped on request"}}
	var summary, report strings.Builder
	WriteReport(&summary, r, testHints{})
	WriteCommitted(&report, r, testHints{})
	for _, text := range []string{summary.String(), report.String()} {
		if !strings.Contains(text, "573 answers of the pending records are logged and are not sent again\n") {
			t.Errorf("%q", text)
		}
	}
	if want := "  stopped: 827 records not computed\n"; !strings.Contains(summary.String(), want) {
		t.Errorf("%q, want %q", summary.String(), want)
	}
	if got, want := notice(orchestrator.Resuming{Answers: 573, Total: 1500}), "resuming: 573 of 1,500 records have a logged answer and are not sent again"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := notice(orchestrator.Resuming{Done: 100, Answers: 573, Total: 1500}), "resuming: 100 of 1,500 records done; 573 more answers logged and not sent again"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The summary shows no batches for concurrent kernels, and does not call a worker idle that has
// committed nothing yet.
func TestReportOfConcurrentWorkers(t *testing.T) {
	r := orchestrator.Report{In: 300, Succeeded: 260, Pending: 40, Concurrency: 4, Unit: "records", Workers: []orchestrator.WorkerReport{
		{Device: "CPU 0", Records: 260, Rate: 100, BusyShare: 0.98},
		{Device: "CPU 1", Records: 37, Rate: 16.9},
	}}
	var out strings.Builder
	WriteReport(&out, r, testHints{})
	if want := "  CPU 0  260 records   100/s  98% busy\n  CPU 1   37 records  16.9/s\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// The first line of a retry reports its result. Records that came in with an "_error" were
// not retried, and dropped records did not necessarily succeed.
func TestReportOfARetry(t *testing.T) {
	upstream := []orchestrator.FailureReport{{Kind: "upstream", KindStats: chunk.KindStats{Count: 5}}}
	for _, test := range []struct {
		report orchestrator.Report
		want   string
	}{
		{orchestrator.Report{In: 1000, Retried: 8}, "retried 8 failed records in 2.0s (1.0/s): 8 succeeded\n"},
		{orchestrator.Report{In: 1000, Retried: 8, Failed: 2}, "retried 8 failed records in 2.0s (1.0/s): 6 succeeded, 2 failed again\n"},
		{orchestrator.Report{In: 1000, Retried: 8, Failed: 5, Failures: upstream}, "retried 8 failed records in 2.0s (1.0/s): 8 succeeded\n"},
		{orchestrator.Report{In: 1000, Retried: 8, Failed: 1, Dropped: 3}, "retried 8 failed records in 2.0s (1.0/s): 7 succeeded or were dropped, 1 failed again\n"},
	} {
		test.report.Elapsed, test.report.Rate = 2*time.Second, 1
		var out strings.Builder
		WriteReport(&out, test.report, testHints{})
		if !strings.HasPrefix(out.String(), "\n"+test.want) {
			t.Errorf("%q, want %s", out.String(), test.want)
		}
	}
}

// The advice after a stop matches the report.
func TestAfterStop(t *testing.T) {
	stream := orchestrator.Report{Resume: orchestrator.ResumesNever, Unresumable: "its input is a stream", Folder: "/data/out.jsonl.gpurun"}
	partly := stream
	partly.OutputBytes = 100
	streamed := partly
	streamed.Streamed = true
	for want, report := range map[string]orchestrator.Report{
		"":                               {Resume: orchestrator.ResumesAsAdvised},
		"run the same command to resume": {Resume: orchestrator.ResumesAtOnce},
		"once that is fixed, run the same command to resume":                                                                 {Resume: orchestrator.ResumesWhenFixed},
		"this job cannot be resumed: its input is a stream":                                                                  stream,
		"this job cannot be resumed: its input is a stream (its partial output is in /data/out.jsonl.gpurun/output.partial)": partly,
	} {
		if got := AfterStop(report); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := AfterStop(streamed); strings.Contains(got, "partial") {
		t.Errorf("%q", got)
	}
}
