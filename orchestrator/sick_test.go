package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
)

// sick is a kernel that fails on some devices: always, on one of every Each records, or once
// it has computed After batches. It fails records with "bad" in them on every device.
type sick struct {
	plugins.Base
	config struct {
		On           []int
		How          string // exit, reject, or with an error
		Each, After  int
		Milliseconds int // of a good batch
	}
	here    bool
	batches int
}

const noImage = "CUDA error: no kernel image is available for execution on the device"

func (s *sick) Open(_ context.Context, device plugins.Device, config plugins.Config) error {
	if err := config.Decode(&s.config); err != nil {
		return err
	}
	s.here = slices.Contains(s.config.On, device.Index)
	return nil
}

func (s *sick) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	s.batches++
	fails := func(i int) bool {
		if !s.here || s.batches <= s.config.After {
			return false
		}
		var record struct{ ID int }
		return s.config.Each == 0 || batch.Decode(i, &record) == nil && record.ID%s.config.Each == 0
	}
	failed := false
	for i := range batch.Len() {
		switch {
		case bytes.Contains(batch.Record(i), []byte("bad")):
			results.Fail(i, "bad record")
		case !fails(i):
			results.Unchanged(i)
		case s.config.How == "reject":
			failed = true
			results.Fail(i, noImage)
		case s.config.How == "exit":
			os.Exit(7)
		default:
			return errors.New(noImage)
		}
	}
	if !failed {
		time.Sleep(time.Duration(s.config.Milliseconds) * time.Millisecond)
	}
	return nil
}

// sickEach is sick as a concurrent kernel.
type sickEach struct{ sick }

func (s *sickEach) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{Name: "sick", Concurrency: 8}, nil
}

func (s *sickEach) Answer(_ context.Context, record plugins.Record) plugins.Answer {
	var r struct{ ID int }
	switch err := record.Decode(&r); {
	case err != nil:
		return plugins.FailedBy(err)
	case bytes.Contains(record.Bytes(), []byte("bad")):
		return plugins.Rejected("bad record")
	case s.here && (s.config.Each == 0 || r.ID%s.config.Each == 0):
		return plugins.FailedBy(errors.New(noImage))
	}
	time.Sleep(time.Duration(s.config.Milliseconds) * time.Millisecond)
	return plugins.Answer{Verdict: plugins.Unchanged}
}

func (s *sickEach) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	return plugins.ProcessEach(ctx, s, 8, batch, results)
}

// sickJob is a job on simulated GPUs, of which some are sick.
func sickJob(d jobDir, gpus int, config string) (orchestrator.Config, *story) {
	c := onMachine(d, gputest.New(gpus), "test-sick")
	c.Kernel.Config, c.Batching.Size = []byte(config), 16
	seen := &story{}
	c.Display.OnEvent = seen.add
	return c, seen
}

// retired returns the devices that were retired, in order.
func (s *story) retired() (list []orchestrator.DeviceRetired) {
	for _, e := range s.events {
		if r, ok := e.(orchestrator.DeviceRetired); ok {
			list = append(list, r)
		}
	}
	return list
}

// A GPU on which records fail that succeed on another one costs no record while another is
// left. It is retired, with one warning.
func TestSickDeviceCostsNoRecord(t *testing.T) {
	for name, test := range map[string]struct {
		gpus   int
		config string
		sick   []string
	}{
		"fails everything, fast": {4, `{"On":[2],"Milliseconds":5}`, []string{"GPU 2"}},
		"rejects everything":     {4, `{"On":[1],"How":"reject","Milliseconds":5}`, []string{"GPU 1"}},
		"fails some":             {4, `{"On":[2],"Each":7,"Milliseconds":5}`, []string{"GPU 2"}},
		"rejects some":           {4, `{"On":[0],"How":"reject","Each":7,"Milliseconds":5}`, []string{"GPU 0"}},
		"turns sick":             {4, `{"On":[3],"After":20,"Milliseconds":5}`, []string{"GPU 3"}},
		"crashes":                {4, `{"On":[2],"How":"exit","Milliseconds":5}`, []string{"GPU 2"}},
		"two of four":            {4, `{"On":[0,3],"Milliseconds":5}`, []string{"GPU 0", "GPU 3"}},
		"three of four":          {4, `{"On":[0,1,3],"Milliseconds":5}`, []string{"GPU 0", "GPU 1", "GPU 3"}},
		"one of two":             {2, `{"On":[0],"Milliseconds":5}`, []string{"GPU 0"}},
		"the others are slow":    {2, `{"On":[1],"Milliseconds":100}`, []string{"GPU 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := 4000
			if strings.Contains(name, "slow") {
				records = 400
			}
			in := numbered(records)
			d := newJobDir(t, in)
			config, seen := sickJob(d, test.gpus, test.config)
			report := mustRun(t, d, config)
			var devices []string
			for _, r := range seen.retired() {
				devices = append(devices, r.Device)
				if r.Records < 1 || r.UUID == "" || slices.Contains(test.sick, r.On) || r.Message == "" {
					t.Errorf("%+v", r)
				}
			}
			slices.Sort(devices)
			if d.read("out.jsonl") != in || report.Failed != 0 || !slices.Equal(devices, test.sick) || len(report.Sick) != len(test.sick) {
				t.Errorf("retired %v, report %+v", devices, report)
			}
			var restarts int64
			for _, w := range report.Workers {
				restarts += w.Restarts
			}
			if restarts > 60 {
				t.Errorf("%d restarts", restarts)
			}
		})
	}
}

// Bad records retire no device, wherever they are, and are marked as they would be on one.
func TestBadRecordsRetireNoDevice(t *testing.T) {
	for name, bad := range map[string]func(i int) bool{
		"evenly":            func(i int) bool { return i%20 == 3 },
		"in one region":     func(i int) bool { return i >= 1000 && i < 1400 },
		"at the beginning":  func(i int) bool { return i > 0 && i < 300 },
		"at the end":        func(i int) bool { return i >= 3900 },
		"one":               func(i int) bool { return i == 2345 },
		"one at the start":  func(i int) bool { return i == 0 },
		"most":              func(i int) bool { return i%10 != 0 },
		"a few in a region": func(i int) bool { return i >= 2000 && i < 2100 && i%5 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var in strings.Builder
			want := 0
			for i := range 4000 {
				if text := ""; bad(i) {
					want++
					fmt.Fprintf(&in, `{"id":%d,"text":"bad%s"}`+"\n", i, text)
					continue
				}
				fmt.Fprintf(&in, `{"id":%d}`+"\n", i)
			}
			d := newJobDir(t, in.String())
			config, seen := sickJob(d, 4, `{"Milliseconds":2}`)
			report := mustRun(t, d, config)
			if report.Failed != int64(want) || len(seen.retired()) > 0 || len(report.Sick) > 0 {
				t.Errorf("%d failed, want %d; retired %v", report.Failed, want, seen.retired())
			}
			alone := newJobDir(t, in.String())
			one, _ := sickJob(alone, 1, `{}`)
			mustRun(t, alone, one)
			if d.read("out.jsonl") != alone.read("out.jsonl") {
				t.Error("the output differs from that of one device")
			}
			var extra int64
			for _, w := range report.Workers {
				extra += w.Batches
			}
			if extra > 4000/16*3/2 {
				t.Errorf("%d batches were computed for %d", extra, 4000/16)
			}
		})
	}
}

// A sick device that is the only one, or one of the CPU's, marks its records as ever.
func TestOnlyDeviceIsNeverRetired(t *testing.T) {
	d := newJobDir(t, numbered(400))
	config, seen := sickJob(d, 1, `{"On":[0],"Each":2}`)
	report := mustRun(t, d, config)
	if report.Failed != 200 || len(seen.retired()) > 0 {
		t.Errorf("retired %v, report %+v", seen.retired(), report)
	}
	for range 5 { // on a busy machine, the other worker may compute everything
		d = newJobDir(t, numbered(400))
		config, seen = sickJob(d, 1, `{"On":[0],"Each":2,"Milliseconds":1}`)
		config.Devices.GPUs, config.Batching.ChunksPerGPU = "cpu:2", 4
		if report = mustRun(t, d, config); report.Workers[0].Records > 0 {
			break
		}
	}
	if report.Failed == 0 || len(seen.retired()) > 0 {
		t.Errorf("retired %v, report %+v", seen.retired(), report)
	}
}

// Several workers share a sick device: all of them leave.
func TestSickDeviceWithSeveralWorkers(t *testing.T) {
	in := numbered(2000)
	d := newJobDir(t, in)
	config, seen := sickJob(d, 2, `{"On":[1],"Milliseconds":5}`)
	config.Devices.WorkersPerGPU = 2
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != in || len(seen.retired()) != 1 {
		t.Errorf("retired %v, report %+v", seen.retired(), report)
	}
	for _, w := range report.Workers {
		if w.Retired != strings.HasPrefix(w.Device, "GPU 1") {
			t.Errorf("%+v", w)
		}
	}
}

// Failures of a sick device do not stop a job by its limit of failed records.
func TestSickDeviceDoesNotHaltTheJob(t *testing.T) {
	in := numbered(2000)
	d := newJobDir(t, in)
	config, seen := sickJob(d, 3, `{"On":[1],"Milliseconds":5}`)
	config.Failures.Halt.Records = 1
	mustRun(t, d, config)
	if d.read("out.jsonl") != in || len(seen.retired()) != 1 {
		t.Errorf("retired %v", seen.retired())
	}
}

// A retry has the job's devices and batches, without a device that was retired, unless the
// user names it.
func TestRetryLeavesOutASickDevice(t *testing.T) {
	in := strings.Replace(numbered(2000), `{"id":77}`, `{"id":77,"text":"bad"}`, 1)
	d := newJobDir(t, in)
	config, seen := sickJob(d, 4, `{"On":[2],"Milliseconds":5}`)
	config.Devices.GPUs = "0-2"
	if report := mustRun(t, d, config); report.Failed != 1 || len(seen.retired()) != 1 {
		t.Fatalf("retired %v, report %+v", seen.retired(), report)
	}
	for gpus, want := range map[string]string{"": "GPU 0, GPU 1", "2,3": "GPU 2, GPU 3"} {
		again, seen := sickJob(d, 4, "")
		again.Kernel, again.Input, again.Devices.GPUs, again.Batching.Size = orchestrator.Kernel{}, orchestrator.Input{}, gpus, 0
		if _, err := orchestrator.Retry(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		for _, e := range seen.events {
			if p, ok := e.(orchestrator.Planned); ok {
				var slots []string
				for _, slot := range p.Plan.Slots {
					slots = append(slots, slot.Name)
				}
				if got := strings.Join(slots, ", "); !strings.HasPrefix(want, got) || p.Plan.BatchSize != 16 {
					t.Errorf("%q: slots %s, batches of %d; want some of %s", gpus, got, p.Plan.BatchSize, want)
				}
			}
		}
	}
}

// A sick device in a job that is killed and resumed costs no record, and the output is the
// same.
func TestSickDeviceInAResume(t *testing.T) {
	in := numbered(4000)
	d := newJobDir(t, in)
	config, _ := sickJob(d, 4, `{"On":[1],"Each":3,"Milliseconds":5}`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	config.Display.OnEvent = func(e orchestrator.Event) {
		if c, ok := e.(orchestrator.ChunkDone); ok && c.Job.Records > 1000 {
			stop()
		}
	}
	first, err := runContext(t, ctx, config)
	if err == nil || first.Pending == 0 || first.Failed > 0 {
		t.Fatalf("%v, %+v", err, first)
	}
	config, seen := sickJob(d, 4, `{"On":[1],"Each":3,"Milliseconds":5}`)
	report := mustRun(t, d, config)
	if d.read("out.jsonl") != in || report.Failed != 0 || report.Resumed == 0 {
		t.Errorf("retired %v, report %+v", seen.retired(), report)
	}
}

// A program that waits for the result of each record gets it, whether the record or the device
// is to blame, although the other device waits for the program.
func TestSuspectedRecordsOfAStreamInStep(t *testing.T) {
	for name, test := range map[string]struct {
		bad    string
		config string
	}{
		"bad records":   {"bad", `{}`},
		"a sick device": {"good", `{"On":[0]}`},
	} {
		t.Run(name, func(t *testing.T) {
			config, work := streamConfig(t, "test-sick")
			on, seen := sickJob(jobDir{t: t, path: work}, 2, test.config)
			on.Input, on.Output, on.Resume, on.Batching = config.Input, config.Output, config.Resume, config.Batching
			results := make(chan struct{}, 1)
			sent, got := 0, 0
			records := func(yield func(orchestrator.Record, error) bool) {
				for ; sent < 40; sent++ {
					record := fmt.Sprintf(`{"id":%d}`, sent)
					if sent%2 == 1 {
						record = fmt.Sprintf(`{"id":%d,"text":%q}`, sent, test.bad)
					}
					if !yield(orchestrator.Record(record), nil) {
						return
					}
					<-results
				}
			}
			for result, err := range orchestrator.Stream(t.Context(), on, records) {
				if err != nil {
					t.Fatal(err)
				}
				if (result.Failure != nil) != (test.bad == "bad" && result.Index%2 == 1) {
					t.Errorf("record %d: %v", result.Index, result.Failure)
				}
				got++
				results <- struct{}{}
			}
			if got != 40 || len(seen.retired()) > 1 {
				t.Errorf("%d results, retired %v", got, seen.retired())
			}
		})
	}
}

// The same holds for kernels that compute records one by one, such as servers of a model.
func TestSickDeviceOfAConcurrentKernel(t *testing.T) {
	for name, each := range map[string]int{"fails everything": 0, "fails some": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := strings.Replace(numbered(3000), `{"id":77}`, `{"id":77,"text":"bad"}`, 1)
			d := newJobDir(t, in)
			config, seen := sickJob(d, 3, fmt.Sprintf(`{"On":[1],"Each":%d,"Milliseconds":2}`, each))
			config.Kernel.Name = "test-sick-each"
			report := mustRun(t, d, config)
			if report.Failed != 1 || len(seen.retired()) != 1 {
				t.Errorf("retired %v, report %+v", seen.retired(), report)
			}
		})
	}
}
