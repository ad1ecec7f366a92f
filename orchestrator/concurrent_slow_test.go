package orchestrator_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// slowInputs are inputs that are cut into chunks of 32 records.
var slowInputs = map[string]func(d jobDir, c *orchestrator.Config){
	"compressed": func(d jobDir, _ *orchestrator.Config) { writeGzip(d.t, d.join("in.jsonl"), d.read("in.jsonl")) },
	"several": func(d jobDir, c *orchestrator.Config) {
		if err := os.Mkdir(d.join("data"), 0o777); err != nil {
			d.t.Fatal(err)
		}
		lines := strings.SplitAfter(d.read("in.jsonl"), "\n")
		for i := range 3 {
			d.write(fmt.Sprintf("data/%d.jsonl", i), strings.Join(lines[i*len(lines)/3:(i+1)*len(lines)/3], ""))
		}
		c.Input.Path = d.join("data")
	},
	"stream": func(d jobDir, c *orchestrator.Config) {
		c.Input.Path, c.Input.Stdin = "-", strings.NewReader(d.read("in.jsonl"))
	},
	// What follows the first chunks arrives only when all of them are at the kernel or done.
	"slow stream": func(d jobDir, c *orchestrator.Config) {
		lines := strings.SplitAfter(d.read("in.jsonl"), "\n")
		r, w := io.Pipe()
		c.Input.Path, c.Input.Stdin = "-", r
		go func() {
			defer w.Close()
			sent := 0
			for _, until := range []int{100, 101, 300, len(lines) - 1} {
				if awaitCalled(d, sent) {
					_, _ = io.WriteString(w, strings.Join(lines[sent:until], ""))
				}
				sent = until
			}
		}()
	},
	"parts": func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("out") + "/" },
}

// awaitCalled waits until the kernel was called for n records.
func awaitCalled(d jobDir, n int) bool {
	for deadline := time.Now().Add(time.Minute); called(d.join("calls")) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// A record that is not answered before the kernel was called for all others holds up none of
// them, whatever the input is: their chunks are finished meanwhile.
func TestSlowRecordAmongChunks(t *testing.T) {
	t.Parallel()
	const n, slow = 1200, 40
	for name, change := range slowInputs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, asks(n, func(i int) string {
				if i == slow {
					return fmt.Sprintf(`,"until":%d`, n)
				}
				return ""
			}), 4)
			c.Input.ChunkRecords, c.Input.Flush = 32, 20*time.Millisecond
			c.Resume.Checkpoint = time.Hour // one would end the chunk
			change(d, &c)
			var before int // chunks that were finished before that of the slow record
			found := false
			c.Display.OnEvent = func(e orchestrator.Event) {
				if done, is := e.(orchestrator.ChunkDone); is {
					if found = found || done.First <= slow && slow < done.First+done.Counts.Records; !found {
						before++
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if r, err := runContext(t, ctx, c); err != nil {
				t.Fatalf("%d of %d records were sent: %v\n%s", called(d.join("calls")), n, err, d.logs())
			} else if r.Succeeded != n {
				t.Errorf("%d succeeded", r.Succeeded)
			}
			if name == "parts" {
				return
			}
			checkAnswers(t, d, n, nil)
			if got := len(strings.Fields(d.read("calls"))); got != n {
				t.Errorf("%d calls for %d records", got, n)
			}
			if before < 10 {
				t.Errorf("only %d chunks were finished while the record took its time", before)
			}
		})
	}
}
