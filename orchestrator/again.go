package orchestrator

import (
	"context"
	"os"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// again returns the job that recomputes the failed records. Everything that shapes its
// results is as in the first job unless the user overrides it.
// TestRetryRestoresWhatShapesResults lists how each field of Config is treated.
func (r *rerun) again() (order, error) {
	c, path, err := r.restored()
	if err != nil {
		return order{}, err
	}
	stored := r.manifest.Spec.Results.Columns.Clone()
	if stored.IsTable() {
		stored.Table.Input = r.manifest.Declared
	}
	s, err := spec.Retry(c.settings(), stored, r.manifest.Layout, path)
	o := order{Spec: s, Program: c.Program}
	if r.config.Devices.GPUs == "" { // otherwise the user says where
		o.sick = r.report.Sick
	}
	return o, err
}

// restored returns the settings of that job, and where kernels are looked for: "" for the
// default.
func (r *rerun) restored() (c Config, path string, err error) {
	was := r.manifest.Spec
	c = r.config
	c.Input = Input{
		Path: r.job.Failed, Format: "jsonl", NoValidate: was.Input.NoValidate, MaxRecordBytes: c.Input.MaxRecordBytes,
		Split: c.Input.Split, ChunkRecords: c.Input.ChunkRecords, Flush: c.Input.Flush,
		// A failed record that came in with an _error was reprocessed; no other has one.
		Reprocess: true,
	}
	c.Output = Output{
		Path: r.job.Again, Keep: was.Results.Kept, Force: c.Output.Force,
		SourceField: was.Output.SourceField, // retry.Job.Merge corrects its values
	}
	c.Format, c.Resume.WorkDir, c.Resume.Clean, c.Pool = was.Format, "", false, nil
	setDefault(&c.Input.MaxRecordBytes, was.Input.MaxRecordBytes)
	setDefault(&c.Kernel.NaN, was.Kernel.NaN)
	if c.Fetch.Members = was.Fetch.Members; len(c.Fetch.Members) > 0 {
		setDefault(&c.Fetch.Root, was.Fetch.Root)
		setDefault(&c.Fetch.MaxBytes, was.Fetch.MaxBytes)
		c.Fetch.AllowPrivate = c.Fetch.AllowPrivate || was.Fetch.AllowPrivate
	}
	if c.Devices.GPUs == "" { // where the job computed
		c.Devices.GPUs, c.Devices.GPUsPerWorker = was.Devices.GPUs, max(c.Devices.GPUsPerWorker, was.Devices.GPUsPerWorker)
	}
	if c.Batching.Size == 0 && !c.Batching.Auto { // another size may not fit
		c.Batching.Size, c.Batching.Auto = was.Batching.Size, was.Batching.Auto
	}
	path, err = r.restoreKernel(&c)
	return c, path, err
}

// restoreKernel restores the job's kernel and the place it was started from. A kernel
// named by the user is resolved from the current folder instead, but runs in the same way: a
// fixed program answers as the other did, and needs the same packages. path is where kernels
// are looked for, "" for the default.
func (r *rerun) restoreKernel(c *Config) (path string, err error) {
	was, python := r.manifest.Spec, r.manifest.Kernel.Interpreter
	if strings.Contains(c.Kernel.Python, "/") {
		c.Kernel.Python = files.Absolute(c.Kernel.Python)
	}
	if c.Kernel.Name == "" {
		c.Kernel.Name, path = was.Kernel.Name, was.PluginPath
		setDefault(&c.Dir, was.Dir)
		setDefault(&c.Kernel.Python, python)
		if c.Dir != "" && !files.IsFolder(c.Dir) {
			return "", fault.NoKernel.New("the job's working folder %s no longer exists; name the kernel to run it from the current folder", c.Dir).Set(c.Kernel.Name)
		}
	}
	if scheme(was.Kernel.Name) == scheme(c.Kernel.Name) {
		setDefault(&c.Kernel.ExecMode, was.Kernel.ExecMode)
		setDefault(&c.Kernel.ExecID, was.Kernel.ExecID)
	}
	if _, err := os.Stat(python); err == nil {
		setDefault(&c.Kernel.Python, python)
	}
	if c.Kernel.Config == nil {
		c.Kernel.Config = was.Kernel.Config
	}
	return path, nil
}

// scheme returns what precedes the colon in a kernel's name: "exec".
func scheme(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// reuse checks what an earlier retry of the same records left. If that retry computed
// all of them with the same kernel and settings but stopped before the merge, its
// results are used. If it stopped earlier, it is resumed. If anything the results
// depend on has changed, the order starts over: results of two kernels must not be mixed.
func (r *rerun) reuse(ctx context.Context, o *order) (report Report, done bool, err error) {
	opened, err := o.open()
	if err != nil {
		return Report{}, false, err
	}
	f := &folder{path: o.Results.Target.Beside()}
	if m, err := readManifest(f.join(manifestFile)); err == nil && len(m.changes(opened, nil, 0)) == 0 {
		if begun, err := f.unfinished(); err == nil && begun != nil {
			return Report{}, false, nil
		}
		report, err := readReport(f.join(reportFile))
		if err == nil && report.Stop == nil {
			if err := o.Results.Target.Compare(ctx, report.OutputBytes, report.OutputCRC32C); err == nil {
				return report, true, nil
			}
		}
	}
	o.Spec = o.With(afresh)
	return Report{}, false, nil
}
