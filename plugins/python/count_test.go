package python_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// What a kernel counts belongs to its record, also if tasks that the record starts count it,
// and if the record fails.
func TestAsyncCount(t *testing.T) {
	k := start(t, `
import asyncio, gpurun
async def part(n):
    await asyncio.sleep(0)
    gpurun.count(completion_tokens=n)
async def process(record):
    if record["do"] == "nothing": return {}
    if record["do"] == "bad": gpurun.count(tokens=1.5)
    gpurun.count(prompt_tokens=5)
    await asyncio.gather(part(1), part(2))
    if record["do"] == "fail": raise gpurun.Fail("no")
    return {"x": 1}
`)
	want := map[string]int64{"prompt_tokens": 5, "completion_tokens": 3}
	for do, counts := range map[string]map[string]int64{"fine": want, "fail": want, "nothing": nil} {
		if a := ask(t, k, `{"do":"`+do+`"}`); !maps.Equal(a.Figures, counts) {
			t.Errorf("%s: %v, %+v", do, a.Figures, a)
		}
	}
	if a := ask(t, k, `{"do":"bad"}`); a.Verdict != plugins.Failed || a.Err == nil || !strings.Contains(a.Err.Error(), "must be a whole number") {
		t.Errorf("%+v", a)
	}
}
