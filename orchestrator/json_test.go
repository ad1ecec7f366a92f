package orchestrator_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
)

// In the JSON of events and reports no list is null, no zero time appears, and no count
// is omitted because it is 0.
func TestJSONTellsNothingFromZero(t *testing.T) {
	for name, input := range map[string]string{"records": numbered(20), "no records": ""} {
		t.Run(name, func(t *testing.T) {
			d := newJobDir(t, input)
			machine := gputest.New(1)
			config := onMachine(d, machine, "echo")
			var mu sync.Mutex
			var texts []string
			config.Display.OnEvent = func(e orchestrator.Event) {
				text, err := json.Marshal(e)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				texts = append(texts, string(text))
			}
			mustRun(t, d, config)
			report := d.read("out.jsonl.gpurun/report.json")
			for _, text := range append(texts, report) {
				for _, wrong := range []string{":null", ": null", "0001-01-01"} {
					if strings.Contains(text, wrong) {
						t.Errorf("%s in %s", wrong, text)
					}
				}
			}
			for _, field := range []string{"in", "succeeded", "failed", "dropped", "pending", "resumed", "retried", "blank_lines", "null_numbers", "workers"} {
				if !strings.Contains(report, `"`+field+`":`) {
					t.Errorf("no %s in %s", field, report)
				}
			}
		})
	}
}
