package orchestrator_test

import (
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

// TestGivingUpKeepsAnswers: a chunk that is given up keeps the answers that are logged, whether
// its worker was lost too often or no device is left. Only the other records are marked.
func TestGivingUpKeepsAnswers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d jobDir, c *orchestrator.Config){
		"attempts used up": func(_ jobDir, c *orchestrator.Config) { c.Failures.Retries = 2 },
		"no device left": func(_ jobDir, c *orchestrator.Config) {
			c.Failures.Retries, c.Failures.GiveUpMark = 20, true
		},
		"in a table": func(d jobDir, c *orchestrator.Config) {
			c.Failures.Retries, c.Output.Path = 2, d.join("out.parquet")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, lost = 20, 13
			d, c := callsJob(t, asks(n, func(i int) string {
				if i == lost { // after all others were called
					return `,"do":"worker","until":20,"sleep":300`
				}
				return ""
			}), 32)
			change(d, &c)
			report := mustRun(t, d, c)
			if report.Failed != 1 || report.Succeeded != n-1 {
				t.Fatalf("%d failed and %d succeeded of %d, although %d were answered", report.Failed, report.Succeeded, n, n-1)
			}
			if c.Output.Path == d.join("out.jsonl") {
				kind := "worker"
				if c.Failures.GiveUpMark {
					kind = "device"
				}
				checkAnswers(t, d, n, map[int]string{lost: kind})
			}
		})
	}
}
