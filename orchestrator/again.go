package orchestrator

import (
	"context"
	"os"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// again returns the job that recomputes the failed records.
func (r *rerun) again() (order, error) {
	c, err := r.restored()
	if err != nil {
		return order{}, err
	}
	stored := r.manifest.Spec.Results.Columns.Clone()
	if stored.IsTable() {
		stored.Table.Input = r.manifest.Declared
	}
	s, err := spec.Retry(c.settings(), stored, r.manifest.Layout)
	o := order{Spec: s, Program: c.Program}
	if r.config.Devices.GPUs == "" { // otherwise the user says where
		o.sick = r.report.Sick
	}
	return o, err
}

// restored returns the settings of that job. Everything that shapes its results is as in the first
// job unless the user overrides it. A fixed kernel runs in the same way as the other did, and
// needs the same packages. TestRetryRestoresWhatShapesResults lists how each field of Config is
// treated.
func (r *rerun) restored() (c Config, err error) {
	c = r.config
	was, python, named := r.manifest.Spec, r.manifest.Kernel.Interpreter, c.Kernel.Name != ""
	if strings.Contains(c.Kernel.Python, "/") {
		c.Kernel.Python = files.Absolute(c.Kernel.Python)
	}
	alike := !named || scheme(was.Kernel.Name) == scheme(c.Kernel.Name)
	c.restore(was, func(setting string) bool { return setting == "exec-mode" && !alike })
	if alike {
		setDefault(&c.Kernel.ExecID, was.Kernel.ExecID)
	}
	if _, missing := os.Stat(python); !named || missing == nil {
		setDefault(&c.Kernel.Python, python)
	}
	if !named && c.Dir != "" && !files.IsFolder(c.Dir) {
		return c, fault.NoKernel.New("the job's working folder %s no longer exists; name the kernel to run it from the current folder", c.Dir).Set(c.Kernel.Name)
	}
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
	c.Fetch.AllowPrivate = c.Fetch.AllowPrivate || was.Fetch.AllowPrivate
	c.Resume.WorkDir, c.Resume.Clean, c.Pool = "", false, nil
	if c.Devices.GPUs == "" { // where the job computed
		c.Devices.GPUs, c.Devices.GPUsPerWorker = was.Devices.GPUs, max(c.Devices.GPUsPerWorker, was.Devices.GPUsPerWorker)
	}
	if c.Batching.Size == 0 && !c.Batching.Auto { // another size may not fit
		c.Batching.Size, c.Batching.Auto = was.Batching.Size, was.Batching.Auto
	}
	return c, nil
}

// restore sets what shapes results to what it was in a stored job, unless it is set here or
// given. A kernel that is not named is the job's, which is found and runs where it did before.
func (c *Config) restore(was *spec.Spec, given func(setting string) bool) {
	if c.Kernel.Name == "" {
		setDefault(&c.Kernel.Path, was.Kernel.Path)
		setDefault(&c.Dir, was.Dir)
	}
	if c.Kernel.Config == nil && !given("kernel-config") {
		c.Kernel.Config = was.Kernel.Config
	}
	was.Restore(c, given)
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
	f := folder.At(o.Results.Target.Beside())
	if m, err := f.Manifest(); err == nil && len(m.Changes(opened.Spec, opened.inputs)) == 0 {
		if begun, err := f.Unfinished(); err == nil && begun != nil {
			return Report{}, false, nil
		}
		report, err := ReadReport(f.Report())
		if err == nil && report.Stop == nil {
			if err := o.Results.Target.Compare(ctx, report.OutputBytes, report.OutputCRC32C); err == nil {
				return report, true, nil
			}
		}
	}
	o.Spec = o.With(afresh)
	return Report{}, false, nil
}
