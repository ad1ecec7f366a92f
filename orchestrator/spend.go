package orchestrator

import (
	"errors"
	"os"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/figures"
)

// figuresFile is what the kernels of a job have counted, in all of its runs.
const figuresFile = "figures"

// openFigures opens the counts of a job whose kernel computes records one by one.
func (p *prepared) openFigures(f *folder) (err error) {
	if p.plan.Info.Concurrency == 0 {
		return nil
	}
	path := absolute(f.join(figuresFile))
	p.figures, err = figures.Open(path)
	if errors.Is(err, figures.ErrDamaged) && !p.limitsSpending() {
		_ = os.Remove(path) // nothing depends on them
		p.figures, err = figures.Open(path)
	}
	switch {
	case errors.Is(err, figures.ErrDamaged):
		return fault.New(fault.Conflict, "what the job has spent is no longer known: %w", err).WithCode(fault.Damaged, "")
	case err != nil:
		return fault.New(fault.Storage, "count requests: %w", err)
	}
	for name, n := range p.config.Resume.Spent {
		p.figures.Raise(name, n)
	}
	p.figuresPath, p.spentBefore = path, p.figures.All()
	return nil
}

// Spent returns what the kernels of the job with this output have counted, whether it runs, was
// interrupted or is finished; nil if there is no such job.
func Spent(output string) (map[string]int64, error) {
	f := &folder{path: absolute(output) + folderSuffix}
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
		return nil, fault.New(fault.Conflict, "what the job has spent is no longer known: %w", err).WithCode(fault.Damaged, "")
	}
	return spent, nil
}

// hasAsked reports whether the job has sent requests.
func (p *prepared) hasAsked() bool { return p.figures != nil && p.figures.Get(figures.Requests) > 0 }

func (p *prepared) limitsSpending() bool {
	return p.config.Resume.MaxRequests > 0 || p.config.Resume.MaxTokens > 0
}

// checkLimits refuses spend limits for a kernel whose requests gpurun does not see.
func (p *prepared) checkLimits() error {
	if p.plan.Info.Concurrency > 0 || !p.limitsSpending() {
		return nil
	}
	setting := "max-requests"
	if p.config.Resume.MaxRequests == 0 {
		setting = "max-tokens-total"
	}
	return fault.New(fault.Usage, "kernel %s computes batches, in which gpurun cannot count requests and tokens; a limit needs a kernel that computes records one by one",
		p.config.Kernel.Name).Set(setting)
}

// spent returns why the job may not send another request, nil if it may.
func (p *prepared) spent() *fault.Error {
	limits := p.config.Resume
	for _, one := range []struct {
		name, what, setting string
		limit               int64
	}{
		{figures.Requests, "requests", "max-requests", limits.MaxRequests},
		{figures.TotalTokens, "tokens", "max-tokens-total", limits.MaxTokens},
	} {
		if one.limit == 0 {
			continue
		}
		if used := p.figures.Get(one.name); used >= one.limit {
			return fault.New(fault.Stopped, "stopped at the limit of %d %s: the job has used %d; raise the limit and run the same command to resume", one.limit, one.what, used).Set(one.setting).By(errAdvised)
		}
	}
	return nil
}

// checkSpend stops a job that has reached its limits in earlier runs, before any kernel
// starts.
func (j *job) checkSpend() error {
	why := j.spent()
	if _, next := j.committer.output.Appended(); why != nil {
		if total, known := j.source.Total(); !known || next < j.config.Input.Offset+total {
			return why
		}
	}
	return nil
}

// spendDrain is how long requests in flight may take at least when a limit is reached: their
// answers are paid for.
const spendDrain = 10 * time.Minute

// overspent drains the job: a worker may not send another request.
// blind: a limit of tokens cannot hold, because the kernel reports none.
func (j *job) overspent(blind bool) {
	why := j.spent()
	if blind {
		why = fault.New(fault.Incompatible, "the job has a limit of tokens, but the kernel's first answers report none").Set("max-tokens-total")
	}
	if why == nil {
		return // another worker has given a request back
	}
	j.drainFor(why, max(j.config.Resume.DrainTimeout, spendDrain))
}

// noteUsage completes the report with what the kernels have counted.
func (j *job) noteUsage(r *Report) {
	if j.figures == nil {
		return
	}
	r.Usage = j.figures.All()
	name := Tokens(r.Usage)
	r.TokenRate = rate(r.Usage[name]-j.spentBefore[name], r.Elapsed-r.Load)
}

// Tokens returns the name of the figure whose rate is a job's tokens per second: those that
// were generated, or all if none were, as with embeddings.
func Tokens(all map[string]int64) string {
	if all[figures.CompletionTokens] > 0 {
		return figures.CompletionTokens
	}
	return figures.TotalTokens
}
