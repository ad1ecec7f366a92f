package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// Survey is what must be known of a job before it is divided among machines, each of which
// computes a range of its records with Input.Offset and Input.Limit.
type Survey struct {
	// Survey is what reading the input shows: how many records there are, and where.
	source.Survey
	// First is the number of the job's first record.
	First int64
	// Print is everything that the output depends on; see Join.
	Print json.RawMessage
	// Output and Errors are absolute paths; Format is the format of the output, Parts whether it is
	// a folder of parts.
	Output, Errors, Format string
	Parts                  bool
	// Columns is what is known of the columns of an output that has some; Arrays are the files
	// of columns beside the output, with absolute paths.
	Columns *columns.Spec
	Arrays  []commit.Array
}

// MakeSurvey checks that a job can be divided into this number of ranges, of equal size
// by ceiling division, and finds them. It reads all of the input.
func MakeSurvey(ctx context.Context, config Config, ranges int) (s Survey, err error) {
	id, o, err := identifyJob(config)
	if err != nil {
		return s, err
	}
	if err := o.CheckOutputs(); err != nil {
		return s, err
	}
	s = Survey{
		First: o.Input.Offset, Output: id.Spec.Output.Path, Errors: id.Spec.Output.Errors, Format: o.Results.Format.Name, Parts: o.Results.PartBytes > 0,
		Arrays: id.Spec.Results.Arrays, Columns: o.Results.Columns.Clone(),
	}
	if s.Print, err = json.Marshal(id); err != nil {
		return s, err
	}
	s.Survey, err = o.inputs.Survey(ctx, o.limits(), ranges, o.cores())
	if err != nil || !s.Columns.IsTable() {
		return s, err
	}
	// What the kernel reads is not known, and does not matter: the table has what is kept.
	bytes := o.bytes(func(string) bool { return false })
	notes, err := o.sampleTable(ctx, format.Options{Columns: o.Input.Columns, Types: o.Output.Columns, Bytes: bytes, Threads: 1}, s.Columns.Table)
	s.Notes = append(s.Notes, notes...)
	return s, err
}

// identifyJob returns what the output of a job depends on that machines share.
func identifyJob(config Config) (id folder.Identity, o *order, err error) {
	if config.Output.Path == "" {
		return id, nil, fault.NoOutput.New("no output: name a file").Set("out.jsonl")
	}
	if o, err = config.open(); err != nil {
		return id, nil, err
	}
	if o.inputs.Streams() {
		return id, nil, fault.NotForShards.New("only files can be divided among machines: a stream can be read only once")
	}
	if err := cmp.Or(o.CheckDivisible(), o.inputs.Check(), o.CheckFolders()); err != nil {
		return id, nil, err
	}
	id, err = folder.Identify(o.Spec, o.inputs, kernelFile(o.Kernel.Name, o.Dir))
	id.Input.Files = source.WithoutChangeTimes(id.Input.Files) // hosts may see different ones
	return id, o, err
}

// CheckKernel asks the kernel for its requirements, as MakePlan does, and compares the settings
// and the first records of the input with them. It ignores what the kernel needs of a device:
// other machines will run the job.
func CheckKernel(ctx context.Context, config Config) error {
	o, err := config.open()
	if err != nil {
		return err
	}
	o.preview = true
	p, err := newPrepared(o, folder.NewEarlier(), func(string) {})
	defer p.close()
	if err != nil {
		return err
	}
	p.staff.useNoDevice()
	if err := p.askKernel(ctx); err != nil {
		return err
	}
	p.plan.Info.NeedsGPU, p.plan.Info.MinMemory = false, 0
	if err := p.fit(); err != nil {
		return err
	}
	return p.members.check(ctx)
}

// kernelFile returns the kernel's file if the kernel is named by one.
func kernelFile(path, dir string) []string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return []string{path}
}

// Join returns the settings with which a machine takes part in the job whose Print this is. Those
// that shape results are the job's, unless they are set in config or given: differs says how such
// a setting contradicts the job. All other settings are the machine's own. config may accept
// changes of the kernel and its configuration.
func Join(config Config, print json.RawMessage, given func(setting string) bool) (joined Config, differs []string, err error) {
	var was folder.Identity
	if err := json.Unmarshal(print, &was); err != nil {
		return config, nil, fault.RunDamaged.New("what the job depends on is damaged: %w", err)
	}
	if !given("input") {
		config.Input.Path, config.Input.Paths = was.Spec.Input.Path, was.Spec.Input.Paths
	}
	config.restore(was.Spec, given)
	now, _, err := identifyJob(config)
	if err != nil {
		return config, nil, err
	}
	for _, c := range now.Changes(was) {
		if !slices.Contains(config.Resume.AcceptChanges, c.What) {
			differs = append(differs, c.Text)
		}
	}
	return config, differs, nil
}
