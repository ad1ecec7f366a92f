package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// Survey is what must be known of a job before it is divided among machines, each of which
// computes a range of its records with Input.Offset and Input.Limit.
type Survey struct {
	// Survey is what reading the input shows: how many records there are, and where.
	source.Survey
	// First is the number of the job's first record.
	First int64
	// Print is everything that the output depends on; see ComparePrints.
	Print json.RawMessage
	// Output and Errors are absolute paths; Format is that of the output, Parts whether it is
	// a folder of parts.
	Output, Errors, Format string
	Parts                  bool
}

// Index is where the ranges of an input are.
type Index = source.Index

// MakeSurvey checks that a job can be divided into this number of ranges, of equal size
// by ceiling division, and finds them. It reads all of the input.
func MakeSurvey(ctx context.Context, config Config, ranges int) (Survey, error) {
	s, o, err := describeJob(config)
	if err != nil {
		return s, err
	}
	if err := o.CheckOutputs(); err != nil {
		return s, err
	}
	s.First = o.Input.Offset
	s.Survey, err = o.inputs.Survey(ctx, source.Surveying{
		Limits: o.limits(), Ranges: ranges, Cores: o.cores(), Columns: o.Input.Columns, SkipBad: o.Input.SkipBad,
	})
	return s, err
}

// DescribeJob is MakeSurvey without reading the input: it leaves out what only that shows.
func DescribeJob(config Config) (Survey, error) {
	s, _, err := describeJob(config)
	return s, err
}

func describeJob(config Config) (Survey, *order, error) {
	if config.Output.Path == "" {
		return Survey{}, nil, fault.NoOutput.New("no output: name a file").Set("out.jsonl")
	}
	o, err := config.open()
	if err != nil {
		return Survey{}, nil, err
	}
	if o.inputs.Streams() {
		return Survey{}, nil, fault.NotForShards.New("only files can be divided among machines: a stream can be read only once")
	}
	if err := cmp.Or(o.CheckDivisible(), o.inputs.Check(), o.CheckFolders()); err != nil {
		return Survey{}, nil, err
	}
	id, err := identify(o, kernelFile(o.Kernel.Name, o.Dir))
	if err != nil {
		return Survey{}, nil, err
	}
	id.Input.Files = source.WithoutChangeTimes(id.Input.Files) // hosts may see different ones
	s := Survey{Output: id.Spec.Output.Path, Errors: id.Spec.Output.Errors, Format: o.Results.Format.Name, Parts: o.Results.PartBytes > 0}
	s.Print, err = json.Marshal(id)
	return s, o, err
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
	p, err := newPrepared(o, newEarlier(), func(string) {})
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

// kernelFile returns the kernel's file if its name is that of one.
func kernelFile(path, dir string) []string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return []string{path}
}

// ComparePrints returns how a job differs from the one whose Print was taken first, except
// for accepted changes: kernel, config.
func ComparePrints(first, now json.RawMessage, accepted []string) ([]string, error) {
	var was, is identity
	if err := json.Unmarshal(first, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(now, &is); err != nil {
		return nil, err
	}
	var texts []string
	for _, c := range is.changes(was) {
		if !slices.Contains(accepted, c.What) {
			texts = append(texts, c.Text)
		}
	}
	return texts, nil
}
