package orchestrator

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
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
// must restore it: then it belongs in the fingerprint or in launch, and in retry.again.
var roles = map[string]role{
	"Input": selecting, "Stdin": selecting, "Limit": selecting, "Offset": selecting,
	"Output": output, "PartBytes": output, "Stdout": output, "Errors": output, "WorkDir": output, "Clean": output,
	"Force": resuming, "Fresh": resuming, "AcceptChanges": resuming,

	"Kernel": restored, "KernelConfig": restored, "ExecMode": restored, "ExecID": restored, "Python": restored, "Dir": restored,
	"pluginPath": restored, "NaN": restored, "MaxRecordBytes": restored, "Keep": restored, "NoValidate": restored,
	"Reprocess": forced, "framed": forced,

	"IOWorkers": effort, "GPUs": effort, "GPUsPerWorker": effort, "WorkersPerGPU": effort, "Stagger": effort,
	"PinUUID": effort, "NoAffinity": effort, "Profile": effort, "Monitor": effort, "NoMonitor": effort,
	"BatchSize": effort, "AutoBatch": effort, "BatchBytes": effort, "GroupBy": effort, "BatchCost": effort, "ChunksPerGPU": effort, "Split": effort,
	"ChunkRecords": effort, "Flush": effort, "Timeout": effort, "OpenTimeout": effort, "Retries": effort,
	"Checkpoint": effort, "DrainTimeout": effort, "MaxTime": effort, "Halt": effort, "GiveUpMark": effort,

	"WorkerBinary": program, "LogLevel": program, "OnEvent": program, "Control": program, "Claim": program, "Abort": program,
	"noDurable": program, "durableEvery": program, "leastTimeout": program, "devices": program, "clock": program,
	"handBack": program, "stallAfter": program, "checkWait": program, "checkAll": program,
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
		Input: in, Output: filepath.Join(dir, "out.jsonl"),
		Kernel: "embed.py", KernelConfig: []byte(`4711`), ExecMode: "batch", ExecID: "id", Python: "/opt/python", Dir: dir,
		pluginPath: "/opt/plugins", NaN: NaNError, MaxRecordBytes: 4711, Keep: []string{"id"}, NoValidate: true,
	}
	print, err := takeFingerprint(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &prepared{config: job, print: print, interpreter: job.Python}
	f := &folder{path: filepath.Join(dir, "out.jsonl.gpurun")}
	if err := f.begin(); err == nil || os.Mkdir(f.path, 0o777) != nil {
		t.Fatal("the job folder was there")
	}
	if err := f.save(p.manifest(time.Now())); err != nil {
		t.Fatal(err)
	}
	m, err := readManifest(f.join(manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	again, err := (&rerun{folder: f, manifest: m, config: Config{Output: job.Output}}).again()
	if err != nil {
		t.Fatal(err)
	}

	was, is := reflect.ValueOf(job), reflect.ValueOf(again)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		switch roles[name] {
		case "":
			t.Errorf("Config.%s has no role: decide in this test whether a retry restores it", name)
		case restored:
			if was.Field(i).IsZero() {
				t.Errorf("this test gives Config.%s no value", name)
			}
			if !reflect.DeepEqual(valueOf(was.Field(i)), valueOf(is.Field(i))) {
				t.Errorf("Config.%s was %v, and is %v in a retry", name, was.Field(i), is.Field(i))
			}
		case forced:
			if is.Field(i).IsZero() {
				t.Errorf("a retry does not set Config.%s", name)
			}
		}
		delete(roles, name)
	}
	for name := range roles {
		t.Errorf("Config has no %s any more", name)
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

// TestEveryPrintedSettingIsRestored: the output settings in the fingerprint are there
// because results depend on them, so a retry must have the same.
func TestEveryPrintedSettingIsRestored(t *testing.T) {
	// Set by a retry, or not relevant to it: Parts and Errors are where results go.
	other := map[string]bool{"Parts": true, "Errors": true, "Reprocess": true}
	kind := reflect.TypeFor[outputPrint]()
	for i := range kind.NumField() {
		field := kind.Field(i)
		if other[field.Name] {
			continue
		}
		var m manifest
		member := reflect.ValueOf(&m.Fingerprint.Output).Elem().Field(i)
		switch field.Type.Kind() {
		case reflect.String:
			member.SetString("error")
		case reflect.Bool:
			member.SetBool(true)
		case reflect.Int64:
			member.SetInt(4711)
		case reflect.Slice:
			member.Set(reflect.ValueOf([]string{"id"}))
		default:
			t.Fatalf("outputPrint.%s is of kind %s: teach this test", field.Name, field.Type.Kind())
		}
		again, err := (&rerun{folder: &folder{}, manifest: &m, config: Config{Kernel: "echo"}}).again()
		if err != nil {
			t.Fatal(err)
		}
		again.Input = "-"
		print, err := takeFingerprint(again, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := reflect.ValueOf(print.Output).Field(i); !reflect.DeepEqual(got.Interface(), member.Interface()) {
			t.Errorf("outputPrint.%s was %v, and is %v in a retry", field.Name, member, got)
		}
	}
}
