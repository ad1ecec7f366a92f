package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// steered is a job that runs alongside the test under a Control.
type steered struct {
	t       *testing.T
	control *orchestrator.Control
	cancel  context.CancelFunc
	done    chan error
	mu      sync.Mutex
	view    *view.Collector
	events  []string
}

func steer(t *testing.T, config orchestrator.Config, control *orchestrator.Control) *steered {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &steered{t: t, control: control, cancel: cancel, done: make(chan error, 1), view: view.NewCollector(time.Now)}
	config.Control = control
	config.Display.OnEvent = func(e orchestrator.Event) {
		s.view.Event(e)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e.EventName())
	}
	go func() {
		_, err := orchestrator.Run(ctx, config)
		s.done <- err
	}()
	t.Cleanup(func() { cancel(); control.Resume() })
	return s
}

func (s *steered) count(event string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.events {
		if name == event {
			n++
		}
	}
	return n
}

// await waits for a state that satisfies the condition.
func (s *steered) await(what string, is func(view.View) bool) view.View {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		state := s.view.View()
		if is(state) {
			return state
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited a minute for %s: %+v", what, state)
		}
	}
}

func (s *steered) awaitPaused() view.View {
	s.t.Helper()
	return s.await("all workers to pause", func(v view.View) bool {
		return v.Phase == view.PhasePaused && len(v.Workers) > 0 &&
			!slices.ContainsFunc(v.Workers, func(w view.Worker) bool { return w.Phase != view.PhasePaused })
	})
}

func computing(s view.View) bool { return s.Done.Records > 0 }

func slowConfig(d jobDir) orchestrator.Config {
	config := d.config("test-slow")
	config.Kernel.Config, config.Batching.Size = fmt.Appendf(nil, `{"milliseconds":50,"until":%q}`, d.join("hurry")), 2
	return config
}

// hurry lets a job of slowConfig, which takes half a minute, end.
func hurry(d jobDir) { touch(d.join("hurry")) }

// A paused job computes nothing and loses neither workers nor records.
func TestPause(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	job := steer(t, slowConfig(d), &orchestrator.Control{})
	job.await("the first batch", computing)
	for range 3 {
		if !job.control.Pause() || job.control.Pause() {
			t.Error("pausing is new once")
		}
		paused := job.awaitPaused()
		if again := job.view.View(); again.Done != paused.Done || again.Workers[0].PID == 0 {
			t.Errorf("while paused: %+v, then %+v", paused, again)
		}
		if !job.control.Resume() || job.control.Resume() {
			t.Error("resuming is new once")
		}
		job.await("it to continue", func(s view.View) bool { return s.Done.Records > paused.Done.Records })
	}
	hurry(d)
	if err := <-job.done; err != nil {
		t.Fatalf("%v\n%s", err, d.logs())
	}
	if d.read("out.jsonl") != d.read("in.jsonl") {
		t.Error("the output differs")
	}
	if job.count("worker_started") != 2 || job.count("paused") != 3 || job.count("resumed") != 3 {
		t.Errorf("events: %d workers, %d pauses, %d resumed", job.count("worker_started"), job.count("paused"), job.count("resumed"))
	}
	if s := job.view.View(); s.Phase != view.PhaseEnded || s.Done.Records != 1000 || s.Total != 1000 {
		t.Errorf("at the end: %+v", s)
	}
	if job.control.Pause(); job.count("paused") != 3 {
		t.Error("an event after the last")
	}
}

// A job that is paused before it starts waits with open kernels; a stop ends the wait,
// and the same job resumes.
func TestPausedJobStops(t *testing.T) {
	d := newJobDir(t, numbered(100))
	control := &orchestrator.Control{}
	control.Pause()
	job := steer(t, slowConfig(d), control)
	if s := job.awaitPaused(); s.Done.Records != 0 {
		t.Errorf("computed although paused: %+v", s)
	}
	if n := job.count("paused"); n != 1 {
		t.Errorf("those who follow its events learned %d times that it is paused", n)
	}
	job.cancel()
	wantFault(t, <-job.done, fault.Canceled)
	hurry(d)
	mustRun(t, d, slowConfig(d))
	if d.read("out.jsonl") != d.read("in.jsonl") {
		t.Error("the output differs")
	}
}

// Every worker responds to Trim: a computing one at its next batch boundary, a waiting
// one at once.
func TestTrim(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	job := steer(t, slowConfig(d), &orchestrator.Control{})
	job.await("the first batch", computing)
	ask := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answers := job.control.Trim(ctx)
		if len(answers) != 2 {
			t.Fatalf("%s: %+v", when, answers)
		}
		for _, answer := range answers {
			wantFault(t, answer.Fault, fault.Incompatible, "cannot free cached memory")
		}
	}
	ask("while it computes")
	job.control.Pause()
	job.awaitPaused()
	ask("while it waits")
	hurry(d)
	job.control.Resume()
	if err := <-job.done; err != nil || d.read("out.jsonl") != d.read("in.jsonl") {
		t.Errorf("the job: %v\n%s", err, d.logs())
	}
	if answers := job.control.Trim(t.Context()); len(answers) != 0 {
		t.Errorf("after its end: %+v", answers)
	}
}

// A job uses the claimed devices of those it selected, and returns them.
func TestClaim(t *testing.T) {
	d := newJobDir(t, numbered(8))
	config := d.config("echo")
	config.Devices.GPUs, config.Batching.Size = "cpu:4", 4 // two chunks: two devices are enough
	var asked, kept, notices []string
	released := 0
	names := func(devices []gpu.Device) (list []string) {
		for _, device := range devices {
			list = append(list, device.String())
		}
		return list
	}
	config.Display.OnEvent = func(e orchestrator.Event) {
		if notice, ok := e.(orchestrator.Notice); ok {
			notices = append(notices, notice.Text)
		}
	}
	config.Devices.Claim = func(_ context.Context, r orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		asked = names(r.Devices)
		if r.Most != 2 || r.Preview {
			t.Errorf("asked for %d of them, preview %v", r.Most, r.Preview)
		}
		r.Notice("waiting for another job")
		return &orchestrator.Claim{
			Devices: r.Devices[1:], Notes: []string{"one is another's"},
			Keep:    func(used []gpu.Device) { kept = names(used) },
			Release: func() { released++ },
		}, nil
	}
	report := mustRun(t, d, config)
	if len(asked) != 4 || !slices.Equal(kept, []string{"CPU 1", "CPU 2"}) || released != 1 {
		t.Errorf("asked for %v, kept %v, released %d times", asked, kept, released)
	}
	if !slices.Equal(notices, []string{"waiting for another job", "one is another's"}) {
		t.Errorf("notices %q", notices)
	}
	for _, w := range report.Workers {
		if w.Device == "CPU 0" {
			t.Errorf("a worker on a device that it was not given: %+v", w)
		}
	}
}

// An error such as a wrong kernel name is reported without waiting for a device.
func TestClaimIsNotWaitedFor(t *testing.T) {
	d := newJobDir(t, numbered(1))
	config := d.config("no-such-kernel")
	config.Devices.Claim = func(ctx context.Context, _ orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		<-ctx.Done() // another job never releases them
		return nil, fault.New(fault.Canceled, "wait: %w", context.Cause(ctx))
	}
	_, err := run(t, config)
	wantFault(t, err, fault.Incompatible, "no-such-kernel")

	refused := errors.New("all are taken")
	config = d.config("echo")
	config.Devices.Claim = func(context.Context, orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		return nil, fault.New(fault.NoDevice, "%w", refused)
	}
	if _, err := run(t, config); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	config.Devices.Claim = func(_ context.Context, r orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		if !r.Preview {
			t.Error("a plan claims devices")
		}
		return nil, refused
	}
	if _, err := orchestrator.MakePlan(t.Context(), config); !errors.Is(err, refused) {
		t.Errorf("a plan does not ask who holds the devices: %v", err)
	}
}

// A resumed job claims no more devices than it has batches in total.
func TestResumedJobClaimsOnlyWhatItCanUse(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, numbered(60))
	config := slowJob(d) // 12 batches
	config.Devices.GPUs = "cpu:16"
	var most []int
	config.Devices.Claim = func(_ context.Context, r orchestrator.ClaimRequest) (*orchestrator.Claim, error) {
		most = append(most, r.Most)
		return &orchestrator.Claim{Devices: r.Devices[:1], Keep: func([]gpu.Device) {}, Release: func() {}}, nil
	}
	interrupt(t, config, "chunk_done", 1)
	if report := resumes(t, d, config); report.Resumed == 0 || !slices.Equal(most, []int{12, 12}) {
		t.Errorf("%d records resumed, asked for %v devices", report.Resumed, most)
	}
}
