package orchestrator

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
)

// again is the job that computes the failed records: all that shapes its results is as
// it was in the first job, unless the user gave something else. TestRetryRestores has a
// table of what each member of Config is in this respect.
func (r *retry) again() (Config, error) {
	was, c := r.manifest.Fingerprint, r.config
	c.Input, c.Output = r.folder.join(retryDir, "in.jsonl"), r.folder.join(retryDir, "out.jsonl")
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

// restoreKernel takes the job's kernel, and starts it where the job did. A kernel that
// the user named is one of here.
func (r *retry) restoreKernel(c *Config) error {
	was, start := r.manifest.Fingerprint.Kernel, r.manifest.Launch
	c.Kernel = was.Name
	setDefault(&c.ExecMode, was.Mode)
	setDefault(&c.ExecID, was.ID)
	setDefault(&c.Dir, start.Dir)
	setDefault(&c.Python, start.Python)
	setDefault(&c.pluginPath, start.PluginPath)
	if c.Dir != "" && !isFolder(c.Dir) {
		return fault.New(fault.Usage, "the working folder %s of the job does not exist any more; name a kernel to run it from here (-k %s)", c.Dir, c.Kernel)
	}
	return nil
}

// reuse looks at what an earlier retry of the same records left. If it has computed all
// of them by the same kernel and settings, but was stopped before the merge, its results
// are taken; if it was stopped before that, it is resumed. If anything that they depend on
// has changed, config starts over: results of two kernels must not be mixed.
func (r *retry) reuse(ctx context.Context, config *Config) (Report, bool) {
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
