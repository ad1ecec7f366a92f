package progress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 123456: "123,456",
		1234567: "1,234,567", -1: "-1", -999: "-999", -1000: "-1,000",
		9223372036854775807: "9,223,372,036,854,775,807", -9223372036854775808: "-9,223,372,036,854,775,808",
	} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestShortCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 9999: "9,999", 10000: "10.0k", 31360: "31.4k", 999949: "999.9k", 999950: "1.0M",
		2000000: "2.0M", 999949999: "999.9M", 999950000: "1.0G", 123456789012: "123.5G",
	} {
		if got := shortCount(n); got != want {
			t.Errorf("shortCount(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestRateText(t *testing.T) {
	for _, test := range []struct {
		rate float64
		want string
	}{
		{0, "0.0/s"},
		{0.04, "0.0/s"},
		{3.14159, "3.1/s"},
		{99.94, "99.9/s"},
		{99.96, "100/s"},
		{1234.4, "1,234/s"},
		{9999.4, "9,999/s"},
		{9999.5, "10.0k/s"},
		{45230, "45.2k/s"},
		{999949, "999.9k/s"},
		{999950, "1.0M/s"},
		{12.34e6, "12.3M/s"},
		{999.96e6, "1.0G/s"},
	} {
		got := rateText(test.rate)
		if got != test.want {
			t.Errorf("rateText(%v) = %q, want %q", test.rate, got, test.want)
		}
		if len(got) > rateWidth {
			t.Errorf("rateText(%v) = %q is wider than its column", test.rate, got)
		}
	}
}

func TestDurationText(t *testing.T) {
	for _, test := range []struct {
		d         time.Duration
		want, eta string
	}{
		{0, "0s", "1s"},
		{400 * time.Microsecond, "0s", "1s"},
		{850 * time.Millisecond, "850ms", "1s"},
		{999600 * time.Microsecond, "1.0s", "1s"},
		{12345 * time.Millisecond, "12.3s", "12s"},
		{59940 * time.Millisecond, "59.9s", "1m0s"},
		{59960 * time.Millisecond, "1m0s", "1m0s"},
		{192 * time.Second, "3m12s", "3m12s"},
		{time.Hour - 400*time.Millisecond, "1h0m", "1h0m"},
		{time.Hour + 10*time.Minute, "1h10m", "1h10m"},
		{62*time.Hour + 3*time.Minute + 29*time.Second, "62h3m", "62h3m"},
		{100 * time.Hour, "100h0m", "100h0m"},
	} {
		if got := durationText(test.d); got != test.want {
			t.Errorf("durationText(%v) = %q, want %q", test.d, got, test.want)
		}
		if got := etaText(test.d); got != test.eta {
			t.Errorf("etaText(%v) = %q, want %q", test.d, got, test.eta)
		}
	}
}

// Foreign text must not move the cursor.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"as it is, ümläute and 漢字":          "as it is, ümläute and 漢字",
		"\x1b[31mred\x1b[0m":                "red",
		"\x1b[2K\x1b[1Aup":                  "up",
		"\x1b]0;title\aafter":               "after",
		"\x1b]0;title\x1b\\after":           "after",
		"a\tb":                              "a b",
		"line\r\n":                          "line",
		"first\nsecond":                     "first second",
		"Loading:  50%\rLoading: 100%":      "Loading: 100%",
		"Loading:  50%\rLoading: 100%\r\n":  "Loading: 100%",
		"bell\a, backspace\b, nul\x00, del": "bell, backspace, nul, del",
		"cut off \x1b":                      "cut off ",
	} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q) = %q, want %q", text, got, want)
		}
	}
}

func slots(format string, n int) []orchestrator.Slot {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(format, i))
	}
	return named(names...)
}

func TestNotice(t *testing.T) {
	lost := fault.New(fault.Worker, "the worker process ended: killed by SIGKILL")
	for _, test := range []struct {
		name  string
		event orchestrator.Event
		want  string
		alarm bool // with --quiet, too
	}{
		{"plan", orchestrator.Planned{Plan: orchestrator.Plan{Records: 2000000, Chunks: 64, Flight: "batches of 128", Slots: slots("CPU %d", 4)}},
			"2,000,000 records in 64 chunks, batches of 128, 4 workers: CPU 0-3", false},
		{"plan of one", orchestrator.Planned{Plan: orchestrator.Plan{Records: 1, Chunks: 1, Flight: "batches of 1", Slots: slots("GPU %d", 1)}},
			"1 record in 1 chunk, batches of 1, 1 worker: GPU 0", false},
		{"plan of a stream", orchestrator.Planned{Plan: orchestrator.Plan{Records: -1, Flight: "batches of 1024", Slots: named("GPU 0", "GPU 2")}},
			"a stream of records, batches of 1024, 2 workers: GPU 0, GPU 2", false},
		{"plan of two workers each", orchestrator.Planned{Plan: orchestrator.Plan{Records: -1, Flight: "batches of 1", Slots: named("GPU 0 #1", "GPU 1 #1", "GPU 2 #1", "GPU 0 #2", "GPU 1 #2", "GPU 2 #2")}},
			"a stream of records, batches of 1, 6 workers: GPU 0-2, 2 each", false},
		{"plan of pairs", orchestrator.Planned{Plan: orchestrator.Plan{Records: -1, Flight: "batches of 1", Slots: named("GPU 0+1", "GPU 2+3", "GPU 4+5")}},
			"a stream of records, batches of 1, 3 workers: GPU 0+1, GPU 2+3, GPU 4+5", false},
		{"plan of many", orchestrator.Planned{Plan: orchestrator.Plan{Records: -1, Flight: "batches of 1", Slots: slots("GPU 1%d+", 10)}},
			"a stream of records, batches of 1, 10 workers: GPU 10+, GPU 11+, GPU 12+, GPU 13+, GPU 14+, GPU 15+, GPU 16+, GPU 17+, … GPU 19+", false},
		{"plan of nothing", orchestrator.Planned{Plan: orchestrator.Plan{Flight: "batches of 128"}},
			"0 records, batches of 128, 0 workers: nothing to do", false},
		{"notice", orchestrator.Notice{Text: "no GPU here\n"}, "no GPU here", false},
		{"alarm", orchestrator.Notice{Text: "running without leases", Alarm: true}, "running without leases", true},
		{"lost worker", orchestrator.WorkerLost{Device: "GPU 1", Fault: lost},
			"GPU 1: the worker process ended: killed by SIGKILL; starting another worker", true},
		{"last worker", orchestrator.WorkerLost{Device: "GPU 1", Fault: lost, Retired: true},
			"GPU 1: the worker process ended: killed by SIGKILL; no other device remains", true},
		{"retired device", orchestrator.DeviceRetired{SickDevice: orchestrator.SickDevice{Device: "GPU 2", Records: 16, Message: "no kernel image"}, On: "GPU 0"},
			"GPU 2 is retired for this job: 16 records failed on it, but not on GPU 0: no kernel image; other devices compute them", true},
		{"retired worker", orchestrator.WorkerLost{Device: "GPU 1", Fault: lost.WithDetail("1\n2\n\n3\n4\n\x1b[1m5\n6%\r100%\n"), Retired: true, RetryAfter: 30 * time.Second},
			"GPU 1: the worker process ended: killed by SIGKILL; trying the device again in 30s\n  | 2\n  | 3\n  | 4\n  | 5\n  | 100%", true},
		{"failing memory", orchestrator.DeviceEvent{Kind: gpu.MemoryErrors, Device: "GPU 1", ECCUncorrected: gpu.Some(uint64(2))},
			"GPU 1 reports uncorrected memory errors (ECC, 2 so far): its results may be wrong; see nvidia-smi -q -d ECC,ROW_REMAPPER and reset the GPU (nvidia-smi -r) when it is idle", true},
		{"given up", orchestrator.ChunkGivenUp{First: 1000, Records: 64, Failed: 3, Fault: fault.New(fault.Crash, "given up after 4 attempts: boom")},
			"3 of the records 1,000 to 1,063 are marked as failed: given up after 4 attempts: boom", true},
		{"stopping", orchestrator.Stopping{Drain: 20 * time.Second}, "stopping: waiting up to 20s for batches in flight (the second SIGINT or SIGTERM stops immediately)", true},
		{"worker started", orchestrator.WorkerStarted{}, "", false},
		{"progress", orchestrator.Progress{}, "", false},
		{"finished", orchestrator.Finished{}, "", false},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			if got := notice(test.event); got != test.want {
				t.Errorf("notice = %q, want %q", got, test.want)
			}
			want := ""
			if test.alarm {
				want = test.want
			}
			if got := alarm(test.event); got != want {
				t.Errorf("alarm = %q, want %q", got, want)
			}
		})
	}
}
