package orchestrator

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// withDifference adds to the error about an output that exists why the job is not the one
// that has finished here.
func (f *folder) withDifference(ctx context.Context, c *order, err error) error {
	e := fault.As(err)
	if e == nil || e.Code != fault.OutputExists {
		return err
	}
	if missing := c.inputs.Check(); missing != nil {
		return missing
	}
	m, unread := readManifest(f.join(manifestFile))
	if unread != nil {
		return err // another program has written it
	}
	if list := (&earlier{manifest: m}).changes(c); len(list) > 0 {
		var texts []string
		if len(m.Input.Files) > 1 && list[0].What == "input" {
			e = e.WithCode(fault.OutputOfOtherFiles)
		}
		if report, err := readReport(f.join(reportFile)); err == nil && report.Failed > 0 && list[0].What == "kernel" {
			e = e.WithCode(fault.OutputWithFailures)
		}
		for _, change := range list {
			texts = append(texts, change.Text)
		}
		return fault.New(e.Kind, "%w, and the job has changed since it wrote that file: %s", e, strings.Join(texts, "; "))
	}
	if report, err := readReport(f.join(reportFile)); err == nil && report.Stop == nil && !f.outputUnchanged(ctx, c.Results.Target, report) {
		return fault.New(e.Kind, "%w, and is no longer what the job wrote", e)
	}
	return err
}

// realPath resolves a name to an absolute path, even if the file does not exist yet.
func realPath(path string) string { return files.RealPath(absolute(path)) }

// forWorker returns a chunk as a worker finds it, which may run in another folder.
func (p *prepared) forWorker(c chunk.Chunk) chunk.Chunk {
	if c.Source == "" && p.config.Output.SourceField != "" {
		c.Source = p.config.inputs.Plain()
	}
	if absolute(p.config.Dir) != absolute(".") {
		c.File = absolute(c.File)
	}
	return c
}

func absolute(path string) string { return files.Absolute(path) }
