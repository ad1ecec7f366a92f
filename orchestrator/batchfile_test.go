package orchestrator_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/openai/openaitest"
)

// A retry takes the requests from the job folder, or from the errors file, and gives the
// results their numbers.
func TestBatchRetry(t *testing.T) {
	t.Parallel()
	for _, errorsFile := range []string{"", "errors.jsonl"} {
		t.Run("errors="+errorsFile, func(t *testing.T) {
			t.Parallel()
			const n = 40
			bad := true
			s := serverFor(t, openaitest.Options{Trouble: func(number, _ int) openaitest.Trouble {
				if bad && number%10 == 4 || number == 7 {
					return openaitest.Trouble{Status: 400}
				}
				return openaitest.Trouble{}
			}})
			input := batchRequests(n) + "not JSON\n" + `{"custom_id":"r-41","method":"GET","url":"/v1/x","body":{}}` + "\n"
			d, c := requestsJob(t, s, input, 8)
			if errorsFile != "" {
				c.Output.Errors = d.join(errorsFile)
			}
			r, err := run(t, c)
			if err != nil || r.Failed != 7 {
				t.Fatalf("%+v, %v\n%s", r, err, d.logs())
			}
			lines := strings.Split(d.read("out.jsonl"), "\n")
			if !strings.HasPrefix(lines[40], `{"id":"batch_req_000000000040","custom_id":null,"response":null,"error":{"code":"record",`) || !strings.Contains(lines[41], "only POST") {
				t.Errorf("%s\n%s", lines[40], lines[41])
			}
			if err := os.Remove(d.join("in.jsonl")); err != nil { // it is not needed
				t.Fatal(err)
			}
			bad = false
			again, err := orchestrator.Retry(t.Context(), orchestrator.Config{Output: orchestrator.Output{Path: c.Output.Path}, Program: c.Program})
			if err != nil || again.Failed != 3 {
				t.Fatalf("%+v, %v", again, err)
			}
			rest := strings.Split(d.read("out.jsonl"), "\n")
			if rest[40] != lines[40] || !strings.Contains(rest[41], "only POST") || len(rest) != len(lines) {
				t.Errorf("%q", rest[40:])
			}
			chunkless := strings.Join(rest[:n], "\n") + "\n"
			if err := os.WriteFile(c.Output.Path, []byte(chunkless), 0o666); err != nil {
				t.Fatal(err)
			}
			checkBatch(t, d, n, map[int]string{7: "400"})
		})
	}
}

// A batch file in which a custom_id occurs twice is refused before any request.
func TestBatchDuplicates(t *testing.T) {
	t.Parallel()
	s := serverFor(t, openaitest.Options{})
	d, c := requestsJob(t, s, batchRequests(5)+"\n"+batchRequests(2), 8)
	_, err := run(t, c)
	wantFault(t, err, fault.Usage, `custom_id "r-0" occurs in line 1 of `, "and again in line 7 of", "1 more")
	if s.Total() != 0 {
		t.Errorf("%d requests were sent", s.Total())
	}
	c.Input.Limit = 5 // the second ones are not computed
	mustRun(t, d, c)
}

// Any kernel can answer requests: its member response is the answer.
func TestBatchKernels(t *testing.T) {
	t.Parallel()
	d := newJobDir(t, batchRequests(3))
	c := d.config("echo")
	c.Format = orchestrator.OpenAIBatch
	r, err := run(t, c)
	if err != nil || r.Failed != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	checkBatch(t, d, 3, map[int]string{0: "member response", 1: "member response", 2: "member response"})
	for setting, change := range map[string]func(*orchestrator.Config){
		"keep":         func(c *orchestrator.Config) { c.Output.Keep = []string{"custom_id"} },
		"input-format": func(c *orchestrator.Config) { c.Input.Format = "csv" },
		"format":       func(c *orchestrator.Config) { c.Format = "openai" },
	} {
		c := newJobDir(t, batchRequests(3)).config("echo")
		c.Format = orchestrator.OpenAIBatch
		change(&c)
		_, err := run(t, c)
		wantFault(t, err, fault.Usage, setting)
	}
}
