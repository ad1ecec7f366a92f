package orchestrator

import (
	"errors"
	"maps"
	"os"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// spending is what the kernels of a job count, and its limits. A kernel that computes batches
// counts nothing.
type spending struct {
	limits Resume
	file   *figures.File // nil if the kernel counts nothing
	path   string
	before map[string]int64 // in earlier runs
}

// open opens the counts in a file, if the kernel counts anything.
func (s *spending) open(path string, counts bool) (err error) {
	if !counts {
		return nil
	}
	path = files.Absolute(path)
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

// complete completes the report with what the kernels have counted.
func (s *spending) complete(r *Report) {
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

// AddUsage adds what the kernels of another job have counted.
func (r *Report) AddUsage(usage map[string]int64) {
	sum := maps.Clone(r.Usage)
	for name, n := range usage {
		if sum == nil {
			sum = make(map[string]int64)
		}
		sum[name] += n
	}
	r.Usage = sum
}
