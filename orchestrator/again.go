package orchestrator

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// again returns the Config of the job that recomputes the failed records. Everything
// that shapes its results is as in the first job unless the user overrides it.
// TestRetryRestoresWhatShapesResults lists how each field of Config is treated.
func (r *rerun) again() (Config, error) {
	was, c := r.manifest.Fingerprint, r.config
	c.Input, c.Output = r.job.Input(), r.job.Results()
	c.Errors, c.WorkDir, c.Clean = "", "", false
	c.Offset, c.Limit, c.framed = 0, 0, true
	// A failed record that came in with an _error was reprocessed; no other has one.
	c.Reprocess = true
	c.Keep, c.NoValidate = was.Output.Keep, was.Output.Unchecked
	setDefault(&c.MaxRecordBytes, was.Output.MaxRecord)
	setDefault(&c.NaN, was.Output.NaN)
	if strings.Contains(c.Python, "/") {
		c.Python = absolute(c.Python)
	}
	if c.Kernel == "" {
		if err := r.restoreKernel(&c); err != nil {
			return c, err
		}
	}
	if c.KernelConfig == nil {
		c.KernelConfig = was.Config
	}
	return c, nil
}

// restoreKernel restores the job's kernel and the place it was started from. A kernel
// named by the user is resolved from the current folder instead.
func (r *rerun) restoreKernel(c *Config) error {
	was, start := r.manifest.Fingerprint.Kernel, r.manifest.Launch
	c.Kernel = was.Name
	setDefault(&c.ExecMode, was.Mode)
	setDefault(&c.ExecID, was.ID)
	setDefault(&c.Dir, start.Dir)
	setDefault(&c.Python, start.Python)
	setDefault(&c.pluginPath, start.PluginPath)
	if c.Dir != "" && !files.IsFolder(c.Dir) {
		return fault.New(fault.Usage, "the job's working folder %s no longer exists; name the kernel to run it from the current folder", c.Dir).WithCode(fault.NoKernel, c.Kernel)
	}
	return nil
}

// reuse checks what an earlier retry of the same records left. If that retry computed
// all of them with the same kernel and settings but stopped before the merge, its
// results are used. If it stopped earlier, it is resumed. If anything the results
// depend on has changed, config starts over: results of two kernels must not be mixed.
func (r *rerun) reuse(ctx context.Context, config *Config) (Report, bool) {
	f := &folder{path: config.Output + folderSuffix}
	m, err := readManifest(f.join(manifestFile))
	if err == nil && len((&earlier{manifest: m}).changes(*config)) == 0 {
		if begun, err := f.unfinished(); err == nil && begun != nil {
			return Report{}, false
		}
		report, err := readReport(f.join(reportFile))
		if err == nil && report.Stop == nil && compareOutput(ctx, config.Output, report) == nil {
			return report, true
		}
	}
	config.Fresh, config.Force = true, true
	return Report{}, false
}
