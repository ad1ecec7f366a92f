package orchestrator

import (
	"context"
	"os"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// again returns the Config of the job that recomputes the failed records. Everything
// that shapes its results is as in the first job unless the user overrides it.
// TestRetryRestoresWhatShapesResults lists how each field of Config is treated.
func (r *rerun) again() (Config, error) {
	was, c := r.manifest.Fingerprint, r.config
	c.Input.Path, c.Output.Path = r.job.Input(), r.job.Results()
	c.Output.Format, c.Output.Arrays, c.Output.Columns = "", nil, nil
	c.Format = was.Output.Lines
	if c.retriedSpec = was.Output.spec(); c.retriedSpec != nil {
		c.knownLayout = r.manifest.Layout
		if c.retriedSpec.IsTable() {
			c.retriedSpec.Table.Input = r.manifest.Declared
		}
	}
	c.Input.Paths, c.Input.Format, c.Input.Columns, c.Input.SkipBad, c.inputs = nil, "jsonl", nil, false, nil
	c.Output.Errors, c.Resume.WorkDir, c.Resume.Clean = "", "", false
	c.Input.Offset, c.Input.Limit, c.framed = 0, 0, true
	c.Input.Place, c.Input.Counts, c.Pool = nil, nil, nil
	// A failed record that came in with an _error was reprocessed; no other has one.
	c.Input.Reprocess = true
	c.Output.SourceField = was.Output.Source // retry.Job.Merge corrects its values
	c.Output.Keep, c.Input.NoValidate = was.Output.kept(), was.Output.Unchecked
	setDefault(&c.Input.MaxRecordBytes, was.Output.MaxRecord)
	setDefault(&c.Kernel.NaN, was.Output.NaN)
	r.restoreFetch(&c)
	r.restoreDevices(&c)
	if strings.Contains(c.Kernel.Python, "/") {
		c.Kernel.Python = absolute(c.Kernel.Python)
	}
	if c.Kernel.Name == "" {
		if err := r.restoreKernel(&c); err != nil {
			return c, err
		}
	}
	r.restoreHow(&c)
	if c.Kernel.Config == nil {
		c.Kernel.Config = was.Config
	}
	return c, nil
}

// restoreDevices restores where and how the job computed, unless the user says otherwise. Devices
// on which its records failed are left out, unless the user names devices.
func (r *rerun) restoreDevices(c *Config) {
	start := r.manifest.Launch
	if c.Devices.GPUs == "" {
		c.Devices.GPUs, c.Devices.GPUsPerWorker = start.GPUs, max(c.Devices.GPUsPerWorker, start.GPUsPerWorker)
		c.sick = r.report.Sick
	}
	if c.Batching.Size == 0 && !c.Batching.Auto {
		c.Batching.Size, c.Batching.Auto = start.BatchSize, start.AutoBatch
	}
}

// restoreKernel restores the job's kernel and the place it was started from. A kernel
// named by the user is resolved from the current folder instead.
func (r *rerun) restoreKernel(c *Config) error {
	was, start := r.manifest.Fingerprint.Kernel, r.manifest.Launch
	c.Kernel.Name = was.Name
	setDefault(&c.Dir, start.Dir)
	setDefault(&c.Kernel.Python, start.Python)
	setDefault(&c.pluginPath, start.PluginPath)
	if c.Dir != "" && !files.IsFolder(c.Dir) {
		return fault.New(fault.Usage, "the job's working folder %s no longer exists; name the kernel to run it from the current folder", c.Dir).WithCode(fault.NoKernel, c.Kernel.Name)
	}
	return nil
}

// restoreHow restores how the job ran its kernel, also for one that the user names: a fixed
// program answers as the other did, and needs the same packages.
func (r *rerun) restoreHow(c *Config) {
	was, start := r.manifest.Fingerprint.Kernel, r.manifest.Launch
	if scheme(was.Name) == scheme(c.Kernel.Name) {
		setDefault(&c.Kernel.ExecMode, was.Mode)
		setDefault(&c.Kernel.ExecID, was.ID)
	}
	if _, err := os.Stat(start.Python); err == nil {
		setDefault(&c.Kernel.Python, start.Python)
	}
}

// scheme returns what precedes the colon in a kernel's name: "exec".
func scheme(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// reuse checks what an earlier retry of the same records left. If that retry computed
// all of them with the same kernel and settings but stopped before the merge, its
// results are used. If it stopped earlier, it is resumed. If anything the results
// depend on has changed, config starts over: results of two kernels must not be mixed.
func (r *rerun) reuse(ctx context.Context, config *Config) (Report, bool) {
	f := &folder{path: config.Output.Path + folderSuffix}
	m, err := readManifest(f.join(manifestFile))
	if err == nil && len((&earlier{manifest: m}).changes(*config)) == 0 {
		if begun, err := f.unfinished(); err == nil && begun != nil {
			return Report{}, false
		}
		report, err := readReport(f.join(reportFile))
		if err == nil && report.Stop == nil && compareOutput(ctx, config.Output.Path, report) == nil {
			return report, true
		}
	}
	config.Resume.Fresh, config.Output.Force = true, true
	return Report{}, false
}
