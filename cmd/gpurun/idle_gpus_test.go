package main

import (
	"strings"
	"testing"
)

// How many GPUs a job uses, and why not all, is reported once.
func TestIdleGPUsAreReportedOnce(t *testing.T) {
	h := newHost(t, 8)
	check := func(how, want string, args ...string) {
		t.Helper()
		for _, command := range []string{"plan", "run"} {
			out := h.gpurun(append([]string{command, "-k", "echo", "--gpus-per-worker", "3", "in.jsonl", "-o", how + ".jsonl"}, args...)...)
			if strings.Count(out, " of 8 GPUs: ") != 1 || !strings.Contains(out, want) {
				t.Errorf("%s, %s: want once %q:\n%s", how, command, want, out)
			}
		}
	}
	check("idle", "using 6 of 8 GPUs: GPU 6 and GPU 7 stay idle, since each worker takes 3")
	check("unleased", "using 6 of 8 GPUs: GPU 6 and GPU 7 stay idle, since each worker takes 3", "--no-lease")
	h.gpurun("gpus", "allocate", "x", "100", "--gpu", "7")
	check("held", "GPU 6 stays idle, since each worker takes 3")
}
