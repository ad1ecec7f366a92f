package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// Every flag in a hint exists.
func TestHintsNameFlags(t *testing.T) {
	known := make(map[string]bool)
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			add(sub)
		}
		for _, line := range strings.Fields(cmd.LocalFlags().FlagUsages()) {
			known[strings.Trim(line, ",")] = true
		}
	}
	add(newRoot())
	for code := range hints {
		if !code.Known() {
			t.Errorf("there is a hint for %q, but no such code", code)
		}
		for _, flag := range regexp.MustCompile(`--?[a-z][a-z-]*`).FindAllString(hint(code, "gpus"), -1) {
			if strings.HasPrefix(flag, "--") && !known[flag] {
				t.Errorf("the hint for %q names %s, which no command has", code, flag)
			}
		}
	}
}

func TestHints(t *testing.T) {
	inner := fault.JobChanged.New("it changed").Set("kernel")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none":         {errors.New("no"), "no"},
		"no code":      {fault.New(fault.Usage, "no"), "no"},
		"unknown code": {fault.BadValue.New("no").WithCode("from-the-future").Set("x"), "no"},
		"setting":      {fault.TooSmall.New("limit must not be negative").Set("limit"), "limit must not be negative (--limit)"},
		"no value":     {fault.NoKernel.New("no kernel"), "no kernel"},
		"advised":      {fault.InputChanged.New("it changed; run the job again").Set(fault.Advised), "it changed; run the job again"},
		"value":        {fault.NoKernel.New("no kernel").Set("100%s"), "no kernel (-k 100%s)"},
		"nothing may change": {fault.JobChanged.New("it changed"),
			"it changed; undo that and run the same command again to resume, or pass --fresh to start over"},
		"inherited": {fault.New(fault.Conflict, "resume: %w", inner),
			"resume: it changed; undo that and run the same command again to resume, or pass --fresh to start over, or --accept-changes kernel to keep what is done and resume"},
		"wrapped": {fmt.Errorf("run: %w", fault.OutputExists.New("it exists")), "run: it exists; --force replaces it"},
	} {
		err := withHint(withHint(test.err))
		if err.Error() != test.want {
			t.Errorf("%s: %q, want %q", name, err, test.want)
		}
		if fault.KindOf(err) != fault.KindOf(test.err) {
			t.Errorf("%s: kind %s", name, fault.KindOf(err))
		}
	}
	if withHint(nil) != nil {
		t.Error("a hint for no error")
	}
}

// Events are shown with hints; the job's own values stay unchanged.
func TestHintsOfEvents(t *testing.T) {
	lost := fault.KernelTimeout.New("too slow").Set("timeout")
	var got []orchestrator.Event
	show := showHints(func(e orchestrator.Event) { got = append(got, e) })
	show(orchestrator.Notice{Text: "finished", Code: fault.JobFinished})
	show(orchestrator.WorkerLost{Fault: lost})
	show(orchestrator.ChunkGivenUp{Fault: lost})
	show(orchestrator.WorkerLost{})
	show(orchestrator.Paused{})
	causes := []orchestrator.FailureReport{{KindStats: chunk.KindStats{Example: "too slow", Code: string(lost.Code), Value: lost.Value}}}
	show(orchestrator.Finished{Report: orchestrator.Report{Causes: causes}})
	if len(got) != 6 || got[5].(orchestrator.Finished).Report.Causes[0].Example != "too slow (--timeout)" || causes[0].Example != "too slow" || got[0].(orchestrator.Notice).Text != "finished; --force runs it again" ||
		got[1].(orchestrator.WorkerLost).Fault.Message != "too slow (--timeout)" ||
		got[2].(orchestrator.ChunkGivenUp).Fault.Message != "too slow (--timeout)" || lost.Message != "too slow" {
		t.Errorf("%+v, %+v", got, lost)
	}
}
