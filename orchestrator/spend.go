package orchestrator

import (
	"errors"
	"os"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// figuresFile is what the kernels of a job have counted, in all of its runs.
const figuresFile = "figures"

// spending is what the kernels of a job count, and its limits. A kernel that computes batches
// counts nothing.
type spending struct {
	limits Resume
	file   *figures.File // nil if the kernel counts nothing
	path   string
	before map[string]int64 // in earlier runs
}

// open opens the counts in a file of the job folder; none if it has no name.
func (s *spending) open(f *folder, name string) (err error) {
	if name == "" {
		return nil
	}
	path := files.Absolute(f.join(name))
	s.file, err = figures.Open(path)
	if errors.Is(err, figures.ErrDamaged) && limitOf(s.limits) == "" {
		_ = os.Remove(path) // nothing depends on them
		s.file, err = figures.Open(path)
	}
	switch {
	case errors.Is(err, figures.ErrDamaged):
		return fault.JobDamaged.New("what the job has spent is no longer known: %w", err)
	case err != nil:
		return fault.JobFiles.New("count requests: %w", err)
	}
	for name, n := range s.limits.Spent {
		s.file.Raise(name, n)
	}
	s.path, s.before = path, s.file.All()
	return nil
}

// Spent returns what the kernels of the job with this output have counted, whether it runs, was
// interrupted or is finished; nil if there is no such job.
func Spent(output string) (map[string]int64, error) {
	f := folderOf(output)
	spent, err := figures.Read(f.join(figuresFile))
	if errors.Is(err, os.ErrNotExist) {
		var report Report
		if report, err = readReport(f.join(reportFile)); err == nil {
			spent = report.Usage
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fault.JobDamaged.New("what the job has spent is no longer known: %w", err)
	}
	return spent, nil
}

// asked reports whether the job has sent requests.
func (s *spending) asked() bool { return s.file != nil && s.file.Get(figures.Requests) > 0 }

// limitOf returns the setting that limits what a job spends, "" if none does.
func limitOf(r Resume) string {
	switch {
	case r.MaxRequests > 0:
		return "max-requests"
	case r.MaxTokens > 0:
		return "max-tokens-total"
	}
	return ""
}

// exhausted returns why the job may not send another request, nil if it may.
func (s *spending) exhausted() *fault.Error {
	for _, one := range []struct {
		name, what, setting string
		limit               int64
	}{
		{figures.Requests, "requests", "max-requests", s.limits.MaxRequests},
		{figures.TotalTokens, "tokens", "max-tokens-total", s.limits.MaxTokens},
	} {
		if one.limit == 0 {
			continue
		}
		if used := s.file.Get(one.name); used >= one.limit {
			return fault.SpendLimit.New("stopped at the limit of %d %s: the job has used %d; raise the limit and run the same command to resume", one.limit, one.what, used).Set(one.setting).By(errAdvised)
		}
	}
	return nil
}

// note completes the report with what the kernels have counted.
func (s *spending) note(r *Report) {
	if s.file == nil {
		return
	}
	r.Usage = s.file.All()
	name := Tokens(r.Usage)
	r.TokenRate = event.Rate(r.Usage[name]-s.before[name], r.Elapsed-r.Load)
}

// Tokens returns the name of the figure whose rate is a job's tokens per second: those that
// were generated, or all if none were, as with embeddings.
func Tokens(all map[string]int64) string {
	if all[figures.CompletionTokens] > 0 {
		return figures.CompletionTokens
	}
	return figures.TotalTokens
}
