package spec_test

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// ofPrograms are the fields of Config that only a program can set.
var ofPrograms = regexp.MustCompile(`^(Input\.(Path|Paths|Stdin|Place|Counts|Table)|Output\.Stdout|Kernel\.(Config|Path)|Devices\.(Claim|Monitor)|Resume\.Spent|Display\.OnEvent)$`)

// TestSettingsAreFields: every setting is stored in a field of Config, and every field is a
// setting.
func TestSettingsAreFields(t *testing.T) {
	fields := make(map[string]bool)
	config := reflect.TypeFor[spec.Config]()
	for i := range config.NumField() {
		group := config.Field(i)
		if group.Type.Name() != group.Name || group.Type.Kind() != reflect.Struct { // groups are named like their types
			continue
		}
		for j := range group.Type.NumField() {
			if name := group.Name + "." + group.Type.Field(j).Name; !ofPrograms.MatchString(name) {
				fields[name] = true
			}
		}
	}
	for _, s := range spec.Settings {
		delete(fields, s.Field)
		delete(fields, s.AutoField)
		delete(fields, s.TableField)
		for _, value := range append(s.Words, s.Default) {
			if value != "" && s.Store(new(spec.Config), value) != nil {
				t.Errorf("%s does not accept %s", s.Name, value)
			}
		}
	}
	for name := range fields {
		t.Errorf("Config.%s is no setting", name)
	}
}

func TestStore(t *testing.T) {
	var c spec.Config
	for name, value := range map[string]string{
		"batch-size": "auto", "workers-per-gpu": "auto", "retries": "0", "batch-bytes": "64K", "max-time": "1h30m", "halt": "fail=5%", "stagger": "false",
		"pin": "uuid", "split": "auto", "keep": "id", "fetch": "image=url", "column": "a=b=c.npy", "exec-mode": "stream", "limit": "7", "source-field": "auto",
	} {
		s, _ := spec.Find(name)
		if err := s.Store(&c, value); err != nil {
			t.Error(err)
		}
	}
	want := spec.Config{}
	want.Batching = spec.Batching{Auto: true, Bytes: 64 << 10}
	want.Devices = spec.Devices{WorkersPerGPU: spec.AutoWorkers, Stagger: spec.StaggerOff, PinUUID: true}
	want.Failures = spec.Failures{Retries: -1, Halt: spec.Halt{Percent: 5}}
	want.Resume.MaxTime = 90 * time.Minute
	want.Output.Keep, want.Output.Arrays = []string{"id"}, []spec.OutputArray{{Column: "a=b", Path: "c.npy"}}
	want.Fetch.Members = []spec.FetchMember{{Name: "image", Field: "url"}}
	want.Kernel.ExecMode, want.Input.Limit, want.Output.SourceField = "stream", 7, "auto"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
}

// TestWrongValues: a text and a field with the same wrong value have the same error.
func TestWrongValues(t *testing.T) {
	for _, test := range []struct {
		name, value, want string
		set               func(*spec.Config)
	}{
		{"limit", "-3", "limit must be at least 0, not -3", func(c *spec.Config) { c.Input.Limit = -3 }},
		{"batch-size", "-3", "batch-size must be at least 1 or auto, not -3", func(c *spec.Config) { c.Batching.Size = -3 }},
		{"workers-per-gpu", "-3", "workers-per-gpu must be at least 1 or auto, not -3", func(c *spec.Config) { c.Devices.WorkersPerGPU = -3 }},
		{"checkpoint", "-5ms", "checkpoint must be more than 0s, not -5ms", func(c *spec.Config) { c.Resume.Checkpoint = -5 * time.Millisecond }},
		{"nan", "nul", "nan must be null or error, not nul; did you mean null?", func(c *spec.Config) { c.Kernel.NaN = "nul" }},
		{"profile", "my laptop", `profile must be datacenter or workstation, not "my laptop"`, func(c *spec.Config) { c.Devices.Profile = "my laptop" }},
		{"batch-bytes", "12Q", "batch-bytes must be a size such as 4096, 64K, 32MiB or 1G, not 12Q", nil},
		{"batch-bytes", "9999999T", "batch-bytes must be a size such as 4096, 64K, 32MiB or 1G, not 9999999T", nil},
		{"timeout", "0s", "timeout must be more than 0s, not 0s", nil},
		{"gpus", " ", "gpus is empty", nil},
		{"halt", "fail=x", `halt "fail=x": must be never, fail=N or fail=P%`, nil},
		{"force", "maybe", "force must be true or false, not maybe", nil},
	} {
		s, _ := spec.Find(test.name)
		errs := []error{s.Store(new(spec.Config), test.value)}
		if test.set != nil {
			var c spec.Config
			test.set(&c)
			errs = append(errs, spec.Check(&c, spec.Settings...))
		}
		for _, err := range errs {
			if err == nil || err.Error() != test.want || fault.KindOf(err) != fault.Usage || fault.As(err).Value != test.name {
				t.Errorf("%s %s: %v", test.name, test.value, err)
			}
		}
	}
}

// TestFill: defaults fill in what is not set, and are accepted.
func TestFill(t *testing.T) {
	var c spec.Config
	c.Failures.Retries, c.Batching.Bytes = -1, 5
	spec.Fill(&c, spec.Settings...)
	if err := spec.Check(&c, spec.Settings...); err != nil {
		t.Error(err)
	}
	if c.Failures.Retries != -1 || c.Batching.Bytes != 5 || c.Devices.GPUs != "all" || c.Resume.DrainTimeout != 20*time.Second || c.Input.MaxRecordBytes != 16<<20 || c.Devices.WorkersPerGPU != spec.Auto {
		t.Errorf("%+v", c)
	}
}

// TestHelp: the help of a setting names no flags, and reads like the others.
func TestHelp(t *testing.T) {
	for _, s := range spec.Settings {
		if s.Help == "" || strings.HasSuffix(s.Help, ".") || strings.Contains(s.Help, "--") {
			t.Errorf("%s: %s", s.Name, s.Help)
		}
	}
}

// ofKernels are the settings that shape results as parts of the kernel's configuration.
var ofKernels = []string{"kernel-config", "steps", "step", "step-config", "truncated"}

// TestShapes: another value of a setting is a change of the job if the row says that results
// depend on it, and only then. A machine that does not give the setting takes it from the job.
func TestShapes(t *testing.T) {
	samples := map[string]string{"fetch": "c=d", "column": "a=b.npy", "fetch-root": t.TempDir(), "errors": "e.jsonl", "halt": "fail=1", "accept-changes": "config", "output": "out2/", "gpus": "cpu:1"}
	notTables := []string{"output", "output-format", "format", "column"}
	for _, output := range []string{"out/", "out.parquet"} {
		resolve := func(c spec.Config) (*spec.Spec, error) {
			c.Input.Path, c.Output.Path, c.Kernel.Name = cmp.Or(c.Input.Path, "in.jsonl"), cmp.Or(c.Output.Path, output), cmp.Or(c.Kernel.Name, "exec:a")
			c.Fetch.Members = append(c.Fetch.Members, spec.FetchMember{Name: "a", Field: "b"})
			spec.PlaceColumns(&c.Input, &c.Output)
			return spec.Resolve(c)
		}
		before, err := resolve(spec.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spec.Settings {
			value := samples[s.Name]
			switch {
			case s.Field == "":
				if s.Shapes && !slices.Contains(ofKernels, s.Name) {
					t.Errorf("results depend on %s, which no field holds", s.Name)
				}
				continue
			case output != "out/" && slices.Contains(notTables, s.Name):
				continue
			case value != "":
			case s.Kind == spec.Bool:
				value = "true"
			case s.Kind == spec.Duration:
				value = "7s"
			case s.Numeric():
				value = "7"
			case s.OneOf():
				value = s.Words[len(s.Words)-1]
			default:
				value = "x"
			}
			var c, machine spec.Config
			if err := s.Store(&c, value); err != nil {
				t.Fatal(err)
			}
			after, err := resolve(c)
			if err != nil {
				t.Errorf("%s %s: %v", s.Name, value, err)
				continue
			}
			if changes := after.Changes(before); (len(changes) > 0) != s.Shapes {
				t.Errorf("%s %s: results depend on it: %t, changes %v", s.Name, value, s.Shapes, changes)
			}
			if changes := before.Changes(after); (len(changes) > 0) != s.Shapes {
				t.Errorf("without %s %s: results depend on it: %t, changes %v", s.Name, value, s.Shapes, changes)
			}
			after.Restore(&machine, func(string) bool { return false })
			machine.Input.Path, machine.Output.Path = after.Input.Path, after.Output.Path
			if joined, err := spec.Resolve(machine); err != nil || len(joined.Changes(after)) > 0 {
				t.Errorf("a machine joins with %s %s of the job: %v, %v", s.Name, value, joined.Changes(after), err)
			}
		}
	}
}
