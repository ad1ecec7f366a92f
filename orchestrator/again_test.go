package orchestrator

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/retry"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// role is what a field of Config means for a retry.
type role string

const (
	// restored: shapes the results. A retry uses the job's value unless the user gives
	// another.
	restored role = "restored"
	// forced: shapes the results, and a retry has its own value.
	forced role = "forced"
	// selecting: selects the job's records; a retry has the failed ones.
	selecting role = "selecting"
	// output: where results go; a retry puts them into the job's output.
	output role = "output"
	// resuming: what to do with an earlier job.
	resuming role = "resuming"
	// effort: how, where and for how long to compute. Results do not depend on it.
	effort role = "effort"
	// program: belongs to the embedding program or to a test.
	program role = "program"
)

// roles lists every field of Config. When adding a field, decide here whether a retry
// must restore it: see rerun.restored.
var roles = map[string]role{
	"Input.Path": selecting, "Input.Paths": selecting, "Input.Format": selecting, "Input.Columns": selecting, "Input.SkipBad": selecting, "Resume.Spool": resuming, "Input.Stdin": selecting, "Input.Limit": selecting, "Input.Offset": selecting, "Input.Place": selecting, "Input.Counts": selecting, "Input.Table": selecting,
	"Output.Path": output, "Output.Arrays": output, "Output.Columns": output, "Output.PartBytes": output, "Output.Format": output, "Output.Stdout": output, "Output.Errors": output, "Resume.WorkDir": output, "Resume.Clean": output,
	"Output.Force": resuming, "Resume.Fresh": resuming, "Resume.AcceptChanges": resuming,

	"Kernel.Name": restored, "Kernel.Path": restored, "Kernel.Config": restored, "Kernel.ExecMode": restored, "Kernel.ExecID": restored, "Kernel.Python": restored, "Dir": restored,
	"Kernel.NaN": restored, "Input.MaxRecordBytes": restored, "Output.Keep": restored, "Output.SourceField": restored, "Input.NoValidate": restored,
	"Fetch.Members": restored, "Fetch.Root": restored, "Fetch.MaxBytes": restored, "Fetch.AllowPrivate": restored,
	"Format":          restored,
	"Input.Reprocess": forced,

	"Fetch.Concurrency": effort, "Fetch.PerHost": effort, "Fetch.Timeout": effort, "Fetch.Retries": effort,
	"Devices.GPUs": restored, "Devices.GPUsPerWorker": restored, "Batching.Size": restored, "Batching.Auto": restored,
	"Kernel.IOWorkers": effort, "Kernel.Start": effort, "Kernel.KeepWarm": effort, "Devices.WorkersPerGPU": effort, "Devices.Stagger": effort,
	"Devices.PinUUID": effort, "Devices.NoAffinity": effort, "Devices.Profile": effort, "Devices.Monitor": effort, "Devices.NoMonitor": effort,
	"Batching.Bytes": effort, "Batching.GroupBy": effort, "Batching.Cost": effort, "Batching.ChunksPerGPU": effort, "Input.Split": effort,
	"Input.ChunkRecords": effort, "Input.Flush": effort, "Failures.Timeout": effort, "Failures.OpenTimeout": effort, "Failures.Retries": effort,
	"Resume.Checkpoint": effort, "Resume.DrainTimeout": effort, "Resume.MaxTime": effort, "Resume.MaxRequests": effort, "Resume.MaxTokens": effort, "Resume.Spent": program, "Failures.Halt": effort, "Failures.GiveUpMark": effort,

	"Program.WorkerBinary": program, "Display.LogLevel": program, "Display.OnEvent": program, "Program.Control": program, "Program.Pool": program, "Program.Agreement": program, "Devices.Claim": program, "Program.Abort": program, "Program.Options": program,
}

// flatten returns the members of a Config by name, those of its groups as Group.Member.
func flatten(config reflect.Value) map[string]reflect.Value {
	members := make(map[string]reflect.Value)
	for i := range config.NumField() {
		field := config.Type().Field(i)
		if field.Type.Name() != field.Name { // groups are named like their types
			members[field.Name] = config.Field(i)
			continue
		}
		for j := range field.Type.NumField() {
			members[field.Name+"."+field.Type.Field(j).Name] = config.Field(i).Field(j)
		}
	}
	return members
}

// TestRetryRestoresWhatShapesResults: a job starts with a distinct value in every field
// of Config that shapes its results, and a retry without any settings has them all.
func TestRetryRestoresWhatShapesResults(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	if err := os.WriteFile(in, []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	job := Config{
		Input: Input{Path: in, MaxRecordBytes: 4711, NoValidate: true}, Output: Output{Path: filepath.Join(dir, "out.jsonl"), Keep: []string{"id"}, SourceField: "source"},
		Kernel: Kernel{Name: "embed.py", Path: "/opt/plugins", Config: []byte(`4711`), ExecMode: "stream", ExecID: "id", Python: "/opt/python", NaN: NaNError}, Dir: dir,
		Fetch:   Fetch{Members: []FetchMember{{Name: "image", Field: "url"}}, Root: "/opt/images", MaxBytes: 4711, AllowPrivate: true},
		Format:  OpenAIBatch,
		Devices: Devices{GPUs: "0,2", GPUsPerWorker: 2}, Batching: Batching{Size: 4711, Auto: true},
	}
	print := folder.Identity{Spec: &spec.Spec{Config: job.settings()}}
	print.Kernel.Interpreter = job.Kernel.Python
	print.Spec = print.Spec.Stored()
	f := folder.At(filepath.Join(dir, "out.jsonl.gpurun"))
	if err := f.Begin(); err == nil || os.Mkdir(f.Path, 0o777) != nil {
		t.Fatal("the job folder was there")
	}
	if err := f.Save(folder.Manifest{Identity: print}); err != nil {
		t.Fatal(err)
	}
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	again, err := (&rerun{folder: f, job: retry.New(f.Path), manifest: m, config: Config{Output: Output{Path: job.Output.Path}}}).restored()
	if err != nil {
		t.Fatal(err)
	}

	was, is := flatten(reflect.ValueOf(job)), flatten(reflect.ValueOf(again))
	for name, before := range was {
		after := is[name]
		switch roles[name] {
		case "":
			t.Errorf("Config.%s has no role: decide in this test whether a retry restores it", name)
		case restored:
			if before.IsZero() {
				t.Errorf("this test gives Config.%s no value", name)
			}
			if !reflect.DeepEqual(valueOf(before), valueOf(after)) {
				t.Errorf("Config.%s was %v, and is %v in a retry", name, before, after)
			}
		case forced:
			if after.IsZero() {
				t.Errorf("a retry does not set Config.%s", name)
			}
		}
	}
	for name := range roles {
		if _, exists := was[name]; !exists {
			t.Errorf("Config has no %s any more", name)
		}
	}
}

// valueOf returns what a field holds, even an unexported one.
func valueOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Slice:
		var list []any
		for i := range v.Len() {
			list = append(list, valueOf(v.Index(i)))
		}
		return list
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Uint8:
		return v.Uint()
	}
	return v.String()
}

// TestRetryHasTheShapeOfItsJob: results depend on the settings that are compared when a job
// resumes, so a retry must have the same.
func TestRetryHasTheShapeOfItsJob(t *testing.T) {
	dir := t.TempDir()
	for name, job := range map[string]spec.Config{
		"lines": {
			Input: Input{NoValidate: true, MaxRecordBytes: 4711}, Output: Output{Keep: []string{"id"}, SourceField: "source"}, Kernel: Kernel{NaN: NaNError, Config: []byte("1"), ExecMode: "stream"},
			Fetch: Fetch{Members: []FetchMember{{Name: "image", Field: "url"}}, Root: dir, MaxBytes: 4711},
		},
		"batch file": {Format: OpenAIBatch},
	} {
		job.Input.Path, job.Input.Format, job.Input.Reprocess, job.Output.Path, job.Kernel.Name = "in.jsonl", "jsonl", true, filepath.Join(dir, "out.jsonl"), "exec:./score"
		was, err := spec.Resolve(job)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&rerun{folder: folder.At(""), job: retry.New(dir), manifest: &folder.Manifest{Identity: folder.Identity{Spec: was}}}).again()
		if err != nil {
			t.Fatal(err)
		}
		if list := again.Changes(was); len(list) > 0 {
			t.Errorf("%s: %v", name, list)
		}
	}
}

// TestRetryWithAnotherKernelRunsItTheSameWay: a fixed program is run as the first one was, in
// the same interpreter; a kernel of another kind takes no settings that it does not have.
func TestRetryWithAnotherKernelRunsItTheSameWay(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, nil, 0o777); err != nil {
		t.Fatal(err)
	}
	was := &spec.Spec{Config: spec.Config{Kernel: Kernel{Name: "exec:./score", ExecMode: "stream", ExecID: "id"}}}
	m := &folder.Manifest{Identity: folder.Identity{Spec: was}}
	m.Kernel.Interpreter = python
	for name, want := range map[string]Kernel{
		"exec:./fixed": {ExecMode: "stream", ExecID: "id", Python: python},
		"fixed.py":     {Python: python},
	} {
		want.Name = name
		again, err := (&rerun{folder: folder.At(""), manifest: m, config: Config{Kernel: Kernel{Name: name}}}).restored()
		if again.Kernel.Config = nil; err != nil || !reflect.DeepEqual(again.Kernel, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, again.Kernel, err, want)
		}
	}
}
