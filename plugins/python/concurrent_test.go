package python_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// ask computes one record.
func ask(t testing.TB, k plugins.Kernel, record string) plugins.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return k.(plugins.Concurrent).Answer(ctx, batch(record).At(0))
}

// What a record may become.
func TestAsyncResults(t *testing.T) {
	k := start(t, `
import asyncio, gpurun
async def process(record):
    await asyncio.sleep(0)
    do = record["do"]
    if do == "members": return {"x": record["n"] + 1, "n": None}
    if do == "nothing new": return {}
    if do == "record":
        record["x"] = [1, 2]
        return record
    if do == "same": return record
    if do == "removed":
        del record["n"]
        return record
    if do == "list": return [{"a": 1}, record]
    if do == "drop": return None
    if do == "empty": return []
    if do == "raise": raise ValueError("bad\nnews")
    if do == "return": return KeyError("k")
    if do == "fail": raise gpurun.Fail("no good")
    if do == "retry": raise gpurun.Retry(after=2.5)
    if do == "retry from":
        try: raise OSError("refused")
        except OSError as error: raise gpurun.Retry() from error
    if do == "text": return "text"
    if do == "nan": return {"x": float("nan")}
    if do == "key": return {1: 2}
    if do == "missing": return record["nowhere"]
    if do == "error": return {"_error": "by hand"}
`)
	for do, want := range map[string]string{
		"members":     `lines {"do": "members", "n": null,"x":2}`,
		"nothing new": `unchanged`,
		"record":      `lines {"do": "record", "n": 1,"x":[1,2]}`,
		"same":        `unchanged`,
		"removed":     `lines {"do":"removed"}`,
		"list":        `lines {"a":1}+{"do": "list", "n": 1}`,
		"drop":        `drop`,
		"empty":       `drop`,
		"raise":       `fail batch ValueError: bad`,
		"return":      `fail batch KeyError: 'k'`,
		"fail":        `fail no good`,
		"retry":       `retry the kernel asked for another attempt 2.5s`,
		"retry from":  `retry OSError: refused 0s`,
		"text":        `fail batch process returned a str for a record: return a dict of new members`,
		"nan":         `lines {"do": "nan", "n": 1,"x":null}`,
		"key":         `fail batch TypeError: member name 1 is not a string`,
		"missing":     `fail batch KeyError: 'nowhere'`,
		"error":       `lines {"do": "error", "n": 1,"_error":"by hand"}`,
	} {
		a := ask(t, k, fmt.Sprintf(`{"do": %q, "n": 1}`, do))
		if got := show(a); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", do, got, want)
		}
	}
	if got := show(ask(t, k, `[1]`)); !strings.HasPrefix(got, "fail batch KeyError") {
		t.Error(got)
	}
}

func show(a plugins.Answer) string {
	text := a.Verdict.String()
	switch a.Verdict {
	case plugins.Lines:
		var lines []string
		for _, line := range a.Lines {
			lines = append(lines, string(line))
		}
		text += " " + strings.Join(lines, "+")
	case plugins.Failed:
		if a.Err != nil {
			err := a.Err
			if fault.KindOf(err) == fault.Unknown {
				err = fault.New(fault.Batch, "%s", err)
			}
			return fmt.Sprintf("%s %s %s", text, fault.KindOf(err), err)
		}
		text += " " + a.Message
	case plugins.Retry:
		text += fmt.Sprintf(" %s %s", a.Message, a.After)
	}
	return text
}

// All functions of the file may be async, and share one loop.
func TestAsyncLife(t *testing.T) {
	k := start(t, `
import asyncio
concurrency = 3
async def setup(ctx):
    global lock, loop, ticks
    lock, loop, ticks = asyncio.Lock(), asyncio.get_running_loop(), 0
    async def tick():
        global ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)
    global task
    task = asyncio.create_task(tick())
async def process(record):
    async with lock:
        before = ticks
        while ticks == before: await asyncio.sleep(0.001)
        return {"same": asyncio.get_running_loop() is loop}
async def close():
    await asyncio.sleep(0)
    print("closed")
`)
	info, err := k.Describe(t.Context(), nil)
	if err != nil || info.Concurrency != 3 || info.InFlight != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	expect(t, k, []string{`{"a":1}`, `{"a":2}`}, []string{`{"a":1,"same":true}`, `{"a":2,"same":true}`})
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// A record waits for another that is sent after it: they run at the same time.
func TestAsyncConcurrently(t *testing.T) {
	k := start(t, `
import asyncio
event = asyncio.Event()
async def process(record):
    if record["n"] == 1: await event.wait()
    else: event.set()
    return {"done": True}
`)
	info, _ := k.Describe(t.Context(), nil)
	if info.Concurrency != 64 {
		t.Errorf("the default is %d", info.Concurrency)
	}
	first := make(chan plugins.Answer, 1)
	go func() { first <- ask(t, k, `{"n":1}`) }()
	if a := ask(t, k, `{"n":2}`); a.Verdict != plugins.Lines {
		t.Error(show(a))
	}
	if a := <-first; a.Verdict != plugins.Lines {
		t.Error(show(a))
	}
}

// A record that is given up has its task canceled; one that swallows that and returns a
// result is answered.
func TestAsyncGiveUp(t *testing.T) {
	k := start(t, `
import asyncio
async def process(record):
    try: await asyncio.sleep(3600)
    except asyncio.CancelledError:
        if record["swallow"]: return {"late": True}
        raise
`)
	for record, want := range map[string]string{
		`{"swallow":false}`: "fail batch asyncio.CancelledError: the record's task was canceled", `{"swallow":true}`: `lines {"swallow":true,"late":true}`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if got := show(k.(plugins.Concurrent).Answer(ctx, batch(record).At(0))); got != want {
			t.Errorf("%s: %s", record, got)
		}
		cancel()
	}
}

// A record that blocks the event loop is blamed when its time is over; the others are only
// lost with the process.
func TestAsyncBlocked(t *testing.T) {
	k := start(t, `
import asyncio, time
async def process(record):
    if record["block"]:
        await asyncio.sleep(0.1)
        time.sleep(3600)
    await asyncio.sleep(3600)
`)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	other := make(chan plugins.Answer, 1)
	go func() { other <- k.(plugins.Concurrent).Answer(ctx, batch(`{"block":false}`).At(0)) }()
	a := k.(plugins.Concurrent).Answer(ctx, batch(`{"block":true}`).At(0))
	if e := fault.As(a.Err); e == nil || e.Kind != fault.Timeout || !strings.Contains(e.Message, "blocked the event loop") || !strings.Contains(e.Detail, "time.sleep(3600)") {
		t.Errorf("%s\n%s", show(a), detail(a.Err))
	}
	if a := <-other; fault.KindOf(a.Err) != fault.Crash {
		t.Error(show(a))
	}
}

// A file that mixes async with what does not combine is refused by name.
func TestAsyncRefused(t *testing.T) {
	describe := describer(t)
	const async = "async def process(record): return None\n"
	for name, test := range map[string]struct{ source, says string }{
		"prepare":       {async + "def prepare(batch): pass", "prepare does not combine with async def process(record)"},
		"setup_prepare": {async + "def prepare(batch): pass\ndef setup_prepare(ctx): pass", "prepare does not combine"},
		"group_by":      {async + "group_by = 'text'", "group_by does not combine"},
		"batch_size":    {async + "batch_size = 4", "batch_size does not combine"},
		"sync":          {"concurrency = 4\ndef process(batch): return {}", "concurrency = 4 needs async def process(record)"},
		"zero":          {async + "concurrency = 0", "concurrency must be an integer from 1 to 65536"},
		"async setup":   {"async def setup(ctx): pass\ndef process(batch): return {}", "setup is async, but gpurun does not await it"},
		"hidden":        {"async def f(record): return None\nprocess = f", "cannot tell from the source whether process is async"},
		"setup raises":  {async + "async def setup(ctx): raise ValueError('no model')", "ValueError: no model"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := describe(test.source)
			if err == nil { // only Open finds it
				_, err = try(t, test.source)
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// The process dies: its records fail with the cause.
func TestAsyncCrash(t *testing.T) {
	k := start(t, "import os\nasync def process(record): os._exit(7)\n")
	if a := ask(t, k, `{}`); fault.KindOf(a.Err) != fault.Crash || !strings.Contains(a.Err.Error(), "7") {
		t.Error(show(a))
	}
	if a := ask(t, k, `{}`); fault.KindOf(a.Err) != fault.Crash {
		t.Error(show(a))
	}
}

// A result that is too large fails its record alone.
func TestAsyncHuge(t *testing.T) {
	k := start(t, "async def process(record): return {'x': 'y' * (50 << 20)} if record['n'] else {'x': 1}\n")
	if a := ask(t, k, `{"n":1}`); a.Err == nil || !strings.Contains(a.Err.Error(), "bytes for a record; the limit is") {
		t.Error(show(a))
	}
	if a := ask(t, k, `{"n":0}`); a.Verdict != plugins.Lines {
		t.Error(show(a))
	}
}

// gpurun.Fail works in a batch kernel too; gpurun.Retry says why it does not.
func TestModuleInBatchKernel(t *testing.T) {
	k := start(t, `
import gpurun
def process(batch):
    return [gpurun.Fail("no good") if r["n"] else gpurun.Retry("busy") for r in batch]
`)
	expect(t, k, []string{`{"n":1}`, `{"n":0}`}, []string{"failed: no good", "failed: gpurun.Retry works only in async def process(record): busy"})
}

// A record that is given up before its task has run, because another blocked the event loop
// meanwhile, is answered as well.
func TestAsyncGiveUpBeforeTheFirstStep(t *testing.T) {
	k := start(t, `
import os, time
async def process(record):
    if record["block"]:
        open(record["block"], "w").close()
        while os.path.exists(record["block"]): time.sleep(0.01)
    return {"done": True}
`)
	file := filepath.Join(t.TempDir(), "blocks")
	first := make(chan plugins.Answer, 1)
	go func() { first <- ask(t, k, fmt.Sprintf(`{"block":%q}`, file)) }()
	for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan plugins.Answer, 1)
	go func() { second <- k.(plugins.Concurrent).Answer(ctx, batch(`{"block":""}`).At(0)) }()
	time.Sleep(100 * time.Millisecond) // it is sent
	cancel()
	time.Sleep(100 * time.Millisecond) // so is this
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if a := <-first; a.Verdict != plugins.Lines {
		t.Error(show(a))
	}
	select {
	case a := <-second: // complete, if it was faster
		if got := show(a); got != "fail batch asyncio.CancelledError: the record's task was canceled" && a.Verdict != plugins.Lines {
			t.Error(got)
		}
	case <-time.After(30 * time.Second):
		t.Error("the record was never answered")
	}
	if a := ask(t, k, `{"block":""}`); a.Verdict != plugins.Lines {
		t.Errorf("afterwards: %s", show(a))
	}
}
