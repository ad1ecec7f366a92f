package orchestrator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestEcho: bytes come out as they went in, whatever they are.
func TestEcho(t *testing.T) {
	tests := []struct{ name, in, out string }{
		{"numbered", numbered(1000), ""},
		{"spaces and order of keys", "{ \"b\" : 1 , \"a\":2.50e1 }\n", ""},
		{"no final newline", "{\"a\":1}\n{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n"},
		{"CRLF", "{\"a\":1}\r\n{\"a\":2}\r\n", "{\"a\":1}\n{\"a\":2}\n"},
		{"BOM", "\xEF\xBB\xBF{\"a\":1}\n", "{\"a\":1}\n"},
		{"blank lines", "\n{\"a\":1}\n \t\n\r\n{\"a\":2}\n\n", "{\"a\":1}\n{\"a\":2}\n"},
		{"no objects", "1\n\"x\"\nnull\n[1,2]\ntrue\n", ""},
		{"empty object", "{}\n", ""},
		{"duplicate keys", "{\"a\":1,\"a\":2}\n", ""},
		{"empty", "", ""},
		{"only blank lines", "\n\n \n", "\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newJobDir(t, test.in)
			report := mustRun(t, d, d.config("echo"))
			want := test.out
			if want == "" {
				want = test.in
			} else if want == "\n" {
				want = ""
			}
			if diff := differences(want, d.read("out.jsonl")); diff != "" {
				t.Error(diff)
			}
			if report.Failed != 0 || int(report.Succeeded) != strings.Count(want, "\n") {
				t.Errorf("report: %+v", report)
			}
		})
	}
}

// TestBadLines: a line that is not a record is kept in its place, marked.
func TestBadLines(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 2000) + `"}`
	tests := []struct{ name, in, out string }{
		{"not JSON", "nope", `{"_raw":"nope","_error":{"kind":"record","message":"not valid JSON: invalid character 'o' at byte 1","step":"echo","line":1}}`},
		{"half an object", `{"a":`, `{"_raw":"{\"a\":","_error":{"kind":"record","message":"not valid JSON: unexpected end of line","step":"echo","line":1}}`},
		{"not UTF-8", "\"\xff\"", `{"_raw_b64":"Iv8i","_error":{"kind":"record","message":"not valid JSON: invalid UTF-8 at byte 1","step":"echo","line":1}}`},
		{"NUL", "\x00", `{"_raw":"\u0000","_error":{"kind":"record","message":"not valid JSON: invalid character '\\x00' at byte 0","step":"echo","line":1}}`},
		{"too long", long, strings.TrimSuffix(long, "}") + `,"_error":{"kind":"record","message":"the line has 2008 bytes, more than max-record-bytes 1000","step":"echo","line":1}}`},
		{"upstream", `{"a":1,"_error":"old"}`, `{"a":1,"_error":"old"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newJobDir(t, test.in+"\n{\"ok\":true}\n")
			config := d.config("echo")
			config.Input.MaxRecordBytes = 1000
			report := mustRun(t, d, config)
			if diff := differences(test.out+"\n{\"ok\":true}\n", d.read("out.jsonl")); diff != "" {
				t.Error(diff)
			}
			if report.Failed != 1 || report.Succeeded != 1 {
				t.Errorf("report: %+v", report)
			}
			if n := strings.Count(d.read("out.jsonl.gpurun/failures.jsonl"), "\n"); n != 1 {
				t.Errorf("failures.jsonl has %d lines", n)
			}
		})
	}
}

// A record that came in with a mark and is computed anyway loses the mark: it says
// nothing about this job. A mark that the kernel adds stays.
func TestReprocessTakesTheMarkOff(t *testing.T) {
	t.Parallel()
	in := `{"a":1,"_error":"old"}` + "\n" + `{"_error":{"kind":"oom"},"a":2}` + "\n" + `{ "_error" : "old" }` + "\n" + `{"a":3}` + "\n"
	for kernel, want := range map[string]string{
		"echo":                                `{"a":1}` + "\n" + `{"a":2}` + "\n" + `{}` + "\n" + `{"a":3}` + "\n",
		`exec:sed 's/}$/,"b":1}/; s/{ *,/{/'`: `{"a":1,"b":1}` + "\n" + `{"a":2,"b":1}` + "\n" + `{"b":1}` + "\n" + `{"a":3,"b":1}` + "\n",
	} {
		d := newJobDir(t, in)
		config := d.config(kernel)
		config.Input.Reprocess = true
		if report := mustRun(t, d, config); report.Succeeded != 4 || d.read("out.jsonl") != want {
			t.Errorf("%s: %+v\n%s", kernel, report, d.read("out.jsonl"))
		}
	}
}

// An _error of null means no error, in input records as in results of the kernel; any
// other value rejects the record with that message.
func TestErrorMemberDecides(t *testing.T) {
	t.Parallel()
	const step = `sed 's/"say":/"_error":/'`
	in := `{"id":0,"_error":null}
{"id":1,"say":null}
{"id":2,"say":"bad"}
{"id":3,"say":{"message":"worse","code":7}}
{"id":4,"say":{"code":7}}
{"id":5,"say":""}
{"id":6,"_error":"old"}
`
	failed := func(id int, say, message, step string) string {
		return fmt.Sprintf(`{"id":%d,"say":%s,"_error":{"kind":"record","message":%q,"step":%q,"line":%d}}`, id, say, message, step, id+1) + "\n"
	}
	for name, one := range map[string]struct{ kernel, step string }{
		"lines":  {"exec:" + step, "exec:" + step},
		"chain":  {"exec:" + step + " → echo", "exec:" + step},
		"second": {"echo → exec:" + step, "exec:" + step},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, in)
			c := d.config(one.kernel)
			c.Batching.Size = 3
			report := mustRun(t, d, c)
			want := `{"id":0,"_error":null}` + "\n" + `{"id":1,"_error":null}` + "\n" +
				failed(2, `"bad"`, "bad", one.step) +
				failed(3, `{"message":"worse","code":7}`, "worse", one.step) +
				failed(4, `{"code":7}`, `{"code":7}`, one.step) +
				failed(5, `""`, "the kernel returned an _error without a message", one.step) +
				`{"id":6,"_error":"old"}` + "\n"
			if diff := differences(want, d.read("out.jsonl")); diff != "" {
				t.Error(diff)
			}
			if report.Succeeded != 2 || report.Failed != 5 {
				t.Errorf("%+v", report)
			}
		})
	}
}

// TestShapes: every verdict, and columns spliced into the bytes of the record.
func TestShapes(t *testing.T) {
	in := `{"do":"drop"}
{"do":"two"}
{"do":"same"}
{"do":"column" }
{"vector":null,"do":"x"}
{}
{"n":1,"n":2}
[1]
`
	d := newJobDir(t, in)
	config := d.config("test-shapes")
	config.Devices.GPUs = "cpu:1"
	report := mustRun(t, d, config)
	want := `{"one":1}
{"two":2}
{"do":"same"}
{"do":"column" ,"vector":[0.5,3.0],"name":"n\"d","n":0}
{"vector":[0.5,4.0],"do":"x","name":"n\"e","n":0}
{"vector":[0.5,5.0],"name":"n\"f","n":0}
{"n":1,"n":0,"vector":[0.5,6.0],"name":"n\"g"}
{"_raw":"[1]","_error":{"kind":"record","message":"the record is not a JSON object: the kernel's column \"vector\" cannot be added to it","step":"test-shapes","line":8}}
`
	if diff := differences(want, d.read("out.jsonl")); diff != "" {
		t.Error(diff)
	}
	if report.Dropped != 1 || report.Failed != 1 || report.Succeeded != 6 {
		t.Errorf("report: %+v", report)
	}
}

func TestKeep(t *testing.T) {
	d := newJobDir(t, "{\"id\":1,\"text\":\"x\",\"do\":\"same\"}\n{\"text\":\"y\",\"id\":2}\n[3]\n")
	config := d.config("test-shapes")
	config.Devices.GPUs, config.Output.Keep = "cpu:1", []string{"id", "url"}
	mustRun(t, d, config)
	want := `{"id":1}
{"id":2,"vector":[0.5,1.0],"name":"n\"b","n":0}
`
	if got := d.read("out.jsonl"); !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestErrorsApart(t *testing.T) {
	d := newJobDir(t, "{\"a\":1}\nbad\n{\"poison\":\"fail\"}\n{\"a\":2}\n")
	config := d.config("test-poison")
	config.Output.Errors = d.join("errors.jsonl")
	report := mustRun(t, d, config)
	if got := d.read("out.jsonl"); got != "{\"a\":1}\n{\"a\":2}\n" {
		t.Errorf("output: %s", got)
	}
	if got := strings.Count(d.read("errors.jsonl"), "_error"); got != 2 || report.Failed != 2 {
		t.Errorf("errors file has %d, report %+v", got, report)
	}
}

func TestLimitAndOffset(t *testing.T) {
	d := newJobDir(t, numbered(100))
	config := d.config("echo")
	config.Input.Offset, config.Input.Limit = 40, 3
	mustRun(t, d, config)
	if got := d.read("out.jsonl"); got != "{\"id\":40}\n{\"id\":41}\n{\"id\":42}\n" {
		t.Errorf("got %s", got)
	}
}

// TestStreams: standard input to standard output, and the same with a limit that leaves
// the rest of the stream unread.
func TestStreams(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	var out bytes.Buffer
	input := numbered(5000)
	report, err := run(t, orchestrator.Config{
		Input: orchestrator.Input{Path: "-", Stdin: strings.NewReader(input), ChunkRecords: 100}, Output: orchestrator.Output{Path: "-", Stdout: &out},
		Kernel: orchestrator.Kernel{Name: "echo"}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
	})
	if err != nil || out.String() != input || report.Succeeded != 5000 {
		t.Errorf("err %v, report %+v, same %t", err, report, out.String() == input)
	}
}

func TestInFlight(t *testing.T) {
	d := newJobDir(t, numbered(500))
	config := d.config("test-late")
	config.Batching.Size = 10
	mustRun(t, d, config)
	if got := d.read("out.jsonl"); got != numbered(500) {
		t.Error("output differs from input")
	}
}

// TestLibrary: several concurrent jobs in one process, each with its own events.
func TestLibrary(t *testing.T) {
	var group sync.WaitGroup
	for i := range 3 {
		d := newJobDir(t, numbered(200+i))
		group.Add(1)
		go func() {
			defer group.Done()
			names := make(map[string]int)
			config := d.config("echo")
			config.Display.OnEvent = func(e orchestrator.Event) { names[e.EventName()]++ }
			report, err := orchestrator.Run(context.Background(), config)
			if err != nil || report.Succeeded != int64(200+i) {
				t.Errorf("job %d: %v, %+v", i, err, report)
			}
			for _, want := range []string{"planned", "worker_started", "worker_ready", "chunk_started", "chunk_done", "finished"} {
				if names[want] == 0 {
					t.Errorf("job %d: no event %s: %v", i, want, names)
				}
			}
		}()
	}
	group.Wait()
}

func TestRefusedBeforeAnyWork(t *testing.T) {
	tests := []struct {
		name   string
		change func(d jobDir, c *orchestrator.Config)
		kind   fault.Kind
		texts  []string
	}{
		{"no input", func(_ jobDir, c *orchestrator.Config) { c.Input.Path = "" }, fault.Usage, []string{"no input"}},
		{"missing input", func(d jobDir, c *orchestrator.Config) { c.Input.Path = d.join("nope") }, fault.Usage, []string{"does not exist"}},
		{"empty folder as input", func(d jobDir, c *orchestrator.Config) {
			c.Input.Path = d.join("empty")
			_ = os.Mkdir(c.Input.Path, 0o777)
		}, fault.Usage, []string{"folder"}},
		{"no output", func(_ jobDir, c *orchestrator.Config) { c.Output.Path = "" }, fault.Usage, []string{"-o"}},
		{"output is the input", func(_ jobDir, c *orchestrator.Config) { c.Output.Path = c.Input.Path; c.Output.Force = true }, fault.Usage, []string{"input itself"}},
		{"output exists", func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("in2"); touch(c.Output.Path) }, fault.Usage, []string{"[output-exists ]"}},
		{"output's folder missing", func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.join("no/out") }, fault.Usage, []string{"mkdir -p"}},
		{"output is a folder", func(d jobDir, c *orchestrator.Config) { c.Output.Path = d.path }, fault.Usage, []string{"folder"}},
		{"output where nothing can be made", func(_ jobDir, c *orchestrator.Config) { c.Output.Path = "/proc/out.jsonl" }, fault.Usage, []string{"/proc/out.jsonl.gpurun"}},
		{"errors is the output", func(_ jobDir, c *orchestrator.Config) { c.Output.Errors = c.Output.Path }, fault.Usage, []string{"[same-file errors]"}},
		{"unknown kernel", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name = "ecko" }, fault.Incompatible, []string{"did you mean echo?"}},
		{"no kernel", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name = "" }, fault.Usage, []string{"-k"}},
		{"kernel is no plugin", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name = "/bin/true" }, fault.Incompatible, []string{"plugins.Serve"}},
		{"kernel refuses its configuration", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Config = []byte(`{"x":1}`) }, fault.Incompatible, []string{"unknown field"}},
		{"configuration is no JSON", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Config = []byte(`{x`) }, fault.Usage, []string{"JSON"}},
		{"kernel fails to describe itself", func(_ jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Kernel.Config = "test-open", []byte(`"describe"`)
		}, fault.Incompatible, []string{"the model has no name"}},
		{"kernel needs a GPU", func(_ jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Kernel.Config = "test-wishes", []byte(`{"needs_gpu":true}`)
		}, fault.Incompatible, []string{"needs a GPU"}},
		{"no such device", func(_ jobDir, c *orchestrator.Config) { c.Devices.GPUs = "cpu:0" }, fault.Usage, []string{"cpu:0"}},
		{"exec program missing", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name = "exec:./nope" }, fault.Incompatible, []string{"not found"}},
		{"exec mode unknown", func(_ jobDir, c *orchestrator.Config) { c.Kernel.Name, c.Kernel.ExecMode = "exec:cat", "fast" }, fault.Usage, []string{"per-record"}},
		{"negative limit", func(_ jobDir, c *orchestrator.Config) { c.Input.Limit = -1 }, fault.Usage, []string{"[bad-value limit]"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newJobDir(t, numbered(10))
			config := d.config("echo")
			test.change(d, &config)
			_, err := run(t, config)
			wantFault(t, err, test.kind, test.texts...)
			if _, err := os.Stat(d.join("out.jsonl")); err == nil {
				t.Error("there is an output")
			}
		})
	}
}

func touch(path string) {
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		panic(err)
	}
}

func TestForce(t *testing.T) {
	d := newJobDir(t, numbered(3))
	touch(d.join("out.jsonl"))
	config := d.config("echo")
	config.Output.Force = true
	mustRun(t, d, config)
	if d.read("out.jsonl") != numbered(3) {
		t.Error("not replaced")
	}
}

// TestSecondJobOfOneOutput: two jobs never write the same output.
func TestSecondJobOfOneOutput(t *testing.T) {
	d := newJobDir(t, numbered(50))
	config := d.config("test-slow")
	config.Kernel.Config, config.Batching.Size = []byte(`{"Milliseconds":20}`), 5
	var second error
	var once sync.Once
	config.Display.OnEvent = func(e orchestrator.Event) {
		if _, ok := e.(orchestrator.ChunkStarted); ok {
			once.Do(func() { _, second = orchestrator.Run(context.Background(), d.config("echo")) })
		}
	}
	mustRun(t, d, config)
	wantFault(t, second, fault.Conflict, "another gpurun")
}

func TestNothingIsLeft(t *testing.T) {
	d := newJobDir(t, numbered(100)+"bad\n")
	temp := shortTemp(t)
	t.Setenv("TMPDIR", temp)
	mustRun(t, d, d.config("echo"))
	left, _ := filepath.Glob(temp + "/*")
	var names []string
	_ = filepath.WalkDir(d.join("out.jsonl.gpurun"), func(path string, entry os.DirEntry, _ error) error {
		if !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, d.path+"/"))
		}
		return nil
	})
	want := []string{"failures.jsonl", "job.json", "lock", "logs/worker-0.log", "report.json"}
	for i := range want {
		want[i] = "out.jsonl.gpurun/" + want[i]
	}
	if len(left) > 0 || differences(want, names) != "" {
		t.Errorf("left in the temporary folder: %v\njob folder: %s", left, differences(want, names))
	}
}

func TestPlan(t *testing.T) {
	d := newJobDir(t, numbered(1000))
	config := d.config("test-wishes")
	config.Kernel.Config = []byte(`{"batch_size":10}`)
	config.Batching.ChunksPerGPU = 4
	plan, err := orchestrator.MakePlan(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(plan.Records, plan.Chunks, plan.ChunkRecords, plan.BatchSize, len(plan.Slots))
	if got != "1000 8 130 10 2" { // ceil(1000/8) = 125, in whole batches 130
		t.Errorf("plan: %s", got)
	}
	if entries, _ := os.ReadDir(d.path); len(entries) != 1 {
		t.Errorf("plan left something: %v", entries)
	}
}
