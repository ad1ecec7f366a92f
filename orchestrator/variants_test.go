package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
	"github.com/gpurun/gpurun/orchestrator"
)

// variant is a job that must survive.
type variant struct {
	name    string
	records int
	change  func(d jobDir, c *orchestrator.Config)

	source, store, way *trait // if it was derived

	once     sync.Once
	expected map[string]string
}

// trait is one of three things that make a job: where its records come from, how its results are
// stored, and how they are computed. Jobs are derived from the tables of these.
type trait struct {
	name    string
	records int // that the job has at least
	change  func(d jobDir, c *orchestrator.Config)

	named   bool // of a source: failed records name its files, whose paths differ in length from run to run
	fetched bool // of a source: its records name files
	short   bool // of a source: its chunks are shorter than a window of grouped records

	parts   bool // of a store: the output is a folder of parts
	encoded bool // of a store: the results are encoded in units
	arrays  bool // of a store: a column is stored beside the lines
	columns bool // of a store: the kernel returns columns

	foreign bool // of a way to compute: its kernel is none of the tests' own, which have points to die at, and columns
}

func asItIs(jobDir, *orchestrator.Config) {}

// The first of each table is what a plain job has.
var (
	sources = []*trait{
		{name: "a file", records: 600, change: asItIs},
		{name: "some of a file", records: 800, change: func(_ jobDir, c *orchestrator.Config) { c.Input.Offset, c.Input.Limit = 101, 603 }},
		{name: "a file cut by bytes", records: 600, named: true, change: func(_ jobDir, c *orchestrator.Config) { c.Input.Split = input.SplitBytes }},
		{name: "a compressed file", records: 600, named: true, short: true, change: func(d jobDir, c *orchestrator.Config) {
			writeGzip(d.t, d.join("in.jsonl"), d.read("in.jsonl"))
			c.Input.ChunkRecords = 50
		}},
		severalFiles,
		{name: "Parquet", short: true, change: parquetInput},
		{name: "Arrow", short: true, change: arrowInput},
		{name: "fetched files", change: fetchedInput, fetched: true},
	}
	stores = []*trait{
		{name: "lines", change: asItIs},
		{name: "errors apart", change: func(d jobDir, c *orchestrator.Config) { c.Output.Errors = d.join("errors.jsonl") }},
		{name: "a work folder", change: func(d jobDir, c *orchestrator.Config) {
			c.Resume.WorkDir = d.join("work")
			d.mkdir("work")
		}},
		{name: "compressed", encoded: true, change: func(d jobDir, c *orchestrator.Config) {
			c.Output.Format, c.Output.Path = "jsonl.zst", d.join("out.jsonl.zst")
		}},
		{name: "parts", parts: true, change: inParts},
		{name: "compressed parts", parts: true, encoded: true, change: func(d jobDir, c *orchestrator.Config) {
			inParts(d, c)
			c.Output.Format = "jsonl.gz"
		}},
		{name: "arrays", encoded: true, arrays: true, columns: true, change: func(d jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Output.Path = "test-vectors", d.join("out.jsonl.zst")
			c.Output.Arrays = []orchestrator.OutputArray{{Column: "vector", Path: d.join("v.npy")}}
		}},
		{name: "a table", encoded: true, columns: true, change: func(d jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Output.Path = "test-grids", d.join("out.parquet")
		}},
		{name: "an Arrow table", encoded: true, columns: true, change: func(d jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Output.Path = "test-grids", d.join("out.arrow")
		}},
		{name: "tables", parts: true, encoded: true, columns: true, change: func(d jobDir, c *orchestrator.Config) {
			inParts(d, c)
			c.Kernel.Name, c.Output.Format, c.Output.Errors = "test-grids", "parquet", ""
		}},
	}
	ways = []*trait{
		{name: "batches", change: asItIs},
		// In groups of similar size, in batches of any order.
		{name: "grouped", records: 1200, change: func(_ jobDir, c *orchestrator.Config) {
			c.Batching.GroupBy, c.Batching.Cost, c.Resume.Checkpoint = "text", 400, 150*time.Millisecond
		}},
		// On a GPU whose number of workers changes about every 100 ms.
		{name: adaptiveGPU, records: 1200, change: func(_ jobDir, c *orchestrator.Config) { c.Devices.GPUs = adaptiveGPU }},
		withModule,
		{name: "prepare processes", records: 1200, foreign: true, change: prepareProcesses},
		{name: "a program", records: 1200, foreign: true, change: streamed},
	}
)

// derive returns the job with the traits of these names, and those of a plain job otherwise.
func derive(names ...string) *variant {
	made := [3]*trait{sources[0], stores[0], ways[0]}
	for _, name := range names {
		found := false
		for i, table := range [][]*trait{sources, stores, ways} {
			if k := slices.IndexFunc(table, func(t *trait) bool { return t.name == name }); k >= 0 {
				made[i], found = table[k], true
			}
		}
		if !found {
			panic("no table has the trait " + name)
		}
	}
	return combine(made[0], made[1], made[2])
}

// derived are the jobs that tests have asked for: each is run once undisturbed.
var derived = struct {
	sync.Mutex
	jobs map[[3]*trait]*variant
}{jobs: make(map[[3]*trait]*variant)}

func combine(source, store, way *trait) *variant {
	derived.Lock()
	defer derived.Unlock()
	key := [3]*trait{source, store, way}
	v := derived.jobs[key]
	if v == nil {
		v = &variant{name: source.name + ", " + store.name + ", " + way.name, records: max(source.records, way.records), source: source, store: store, way: way}
		v.change = func(d jobDir, c *orchestrator.Config) {
			source.change(d, c)
			store.change(d, c)
			way.change(d, c)
			if source.named {
				c.Output.Errors = d.join("errors.jsonl")
			}
			if way.foreign && store.columns { // or the first batch to succeed would decide, and rows differ
				c.Output.Columns = []string{"id:json", "version:json"}
			}
		}
		derived.jobs[key] = v
	}
	return v
}

// exists reports whether there is such a job: kernels of others return no columns and take no files.
func (v *variant) exists() bool {
	return !v.way.foreign || hasPython() && !v.store.arrays && !v.source.fetched
}

// rotation returns a job with each store that fits; the other traits follow from the number.
func rotation(number int, fits func(v *variant) bool) (list []*variant) {
	for i, store := range stores {
		for k := range len(sources) * len(ways) {
			v := combine(sources[(number+i+k)%len(sources)], store, ways[(number+i+k)%len(ways)])
			if v.exists() && fits(v) {
				list = append(list, v)
				break
			}
		}
	}
	return list
}

// randomVariant returns any job that fits.
func randomVariant(random *rand.Rand, fits func(v *variant) bool) *variant {
	for {
		v := combine(sources[random.IntN(len(sources))], stores[random.IntN(len(stores))], ways[random.IntN(len(ways))])
		if v.exists() && fits(v) {
			return v
		}
	}
}

// start creates the input and the Config. Segments are small and many.
func (v *variant) start(t *testing.T) (jobDir, orchestrator.Config) {
	t.Helper()
	d := newJobDir(t, mixed(v.records))
	c := d.config("test-work")
	c.Batching.Size, c.Batching.ChunksPerGPU, c.Resume.Checkpoint = 8, 4, 50*time.Millisecond
	c.Kernel.Config = []byte(`{"Milliseconds":6}`)
	v.change(d, &c)
	return d, c
}

// undisturbed returns what the files must contain.
func (v *variant) undisturbed(t *testing.T) map[string]string {
	t.Helper()
	v.once.Do(func() {
		d, c := v.start(t)
		c.Kernel.Config = nil // without its pauses
		if v.store == stores[0] {
			c.Batching.GroupBy, c.Batching.Cost = "", 0 // in input order; the chunks of this plan are others
		}
		mustRun(t, d, adapted(c))
		v.expected = results(d, c)
	})
	if v.expected == nil {
		t.Fatal("the undisturbed run failed")
	}
	return v.expected
}

// adaptiveGPU selects the simulated GPU of such a job: a driver gets a job's Config as
// JSON.
const adaptiveGPU = "adaptive"

// adapted puts a job that asks for it on that GPU. Units of encoded outputs are short.
func adapted(c orchestrator.Config) orchestrator.Config {
	c = orchestrator.WithUnitBytes(c, 2000)
	if c.Devices.GPUs != adaptiveGPU {
		return c
	}
	c.Devices.GPUs = "all"
	c = orchestrator.WithDevices(c, gpu.Options{NVML: gputest.New(1), Env: gputest.NoEnv})
	return orchestrator.WithScaling(c, 6, 60)
}

// severalFiles has plain and compressed files.
var severalFiles = &trait{name: "several files", records: 600, named: true, short: true, change: func(d jobDir, c *orchestrator.Config) {
	d.mkdir("data")
	lines := strings.SplitAfter(d.read("in.jsonl"), "\n")
	for i := range 6 {
		text := strings.Join(lines[i*len(lines)/6:(i+1)*len(lines)/6], "")
		if i%2 == 0 {
			d.write(fmt.Sprintf("data/%d.jsonl", i), text)
		} else {
			writeGzip(d.t, d.join(fmt.Sprintf("data/%d.jsonl.gz", i)), text)
		}
	}
	c.Input.Path, c.Input.ChunkRecords = d.join("data/**/*.jsonl*"), 50
}}

// parquetInput reads Parquet files: one with many pages, one with many row groups.
func parquetInput(d jobDir, c *orchestrator.Config) {
	for _, name := range []string{"pages.parquet", "groups.parquet"} {
		data, err := os.ReadFile("../chunk/input/parquet/testdata/" + name)
		if err != nil {
			d.t.Fatal(err)
		}
		d.write("data/"+name, string(data))
	}
	c.Input.Path, c.Input.ChunkRecords = d.join("data"), 40
}

// arrowInput reads Arrow files: two streams in small batches, with and without dictionaries that change.
func arrowInput(d jobDir, c *orchestrator.Config) {
	for _, name := range []string{"batches.arrows", "datasets.arrow"} {
		data, err := os.ReadFile("../chunk/input/arrow/testdata/" + name)
		if err != nil {
			d.t.Fatal(err)
		}
		d.write("data/"+name, string(data))
	}
	c.Input.Path, c.Input.ChunkRecords, c.Input.Limit = d.join("data"), 40, 600
}

// fetchedInput has records that name files, some of which do not exist.
func fetchedInput(d jobDir, c *orchestrator.Config) {
	var lines strings.Builder
	for i := range 600 {
		fmt.Fprintf(&lines, "{\"id\":%d,\"path\":\"data/%d.bin\"}\n", i, i%23)
		if i < 20 {
			d.write(fmt.Sprintf("data/%d.bin", i), strings.Repeat(fmt.Sprint(i), 1000*i))
		}
	}
	d.write("in.jsonl", lines.String())
	c.Fetch.Members = []orchestrator.FetchMember{{Name: "file", Field: "path"}}
}

// inParts writes the output in parts over an older one, with a separate errors file.
func inParts(d jobDir, c *orchestrator.Config) {
	c.Output.Path, c.Output.PartBytes, c.Output.Errors, c.Output.Force = d.join("out")+"/", 6000, d.join("errors.jsonl"), true
	d.write("out/part-00000.jsonl", "{}\n")
	d.write("out.manifest.json", `{"format":"gpurun-parts","version":1,"records":1,"parts":[{"name":"part-00000.jsonl"}]}`)
}

func (d jobDir) mkdir(name string) {
	d.t.Helper()
	if err := os.MkdirAll(d.join(name), 0o777); err != nil {
		d.t.Fatal(err)
	}
}

// withModule has a Python kernel with a module, which is edited between two lives.
var withModule = &trait{name: "module", records: 1200, foreign: true, change: func(d jobDir, c *orchestrator.Config) {
	d.write("kernel.py", `
import time, helper
def setup(ctx):
    global pause
    pause = ctx.config.get("Milliseconds", 0) / 1000
def process(batch):
    time.sleep(pause)
    return [helper.compute(record) for record in batch]
`)
	d.write("helper.py", soakHelper)
	c.Kernel.Name, c.Dir = "kernel.py", d.path
}}

// prepareProcesses has a Python kernel that computes in prepare processes.
func prepareProcesses(d jobDir, c *orchestrator.Config) {
	d.write("kernel.py", `
import time, helper
def setup_prepare(ctx):
    global pause
    pause = ctx.config.get("Milliseconds", 0) / 1000
def prepare(batch):
    time.sleep(pause)
    return [helper.compute(dict(record)) for record in batch]
def process(results):
    return results
`)
	d.write("helper.py", soakHelper)
	c.Kernel.Name, c.Dir = "kernel.py", d.path
}

// streamed has an exec: program that answers line by line.
func streamed(d jobDir, c *orchestrator.Config) {
	d.write("program.py", `
import json, os, sys, time
pause = json.loads(os.environ.get("GPURUN_KERNEL_CONFIG", "{}")).get("Milliseconds", 0) / 8000
for line in sys.stdin:
    record = json.loads(line)
    time.sleep(pause)
    record["version"] = 1
    print("" if record.get("do") == "drop" else json.dumps(record), flush=True)
`)
	c.Kernel.Name, c.Kernel.ExecMode, c.Dir = "exec:python3 program.py", "stream", d.path
}
