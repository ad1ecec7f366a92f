package orchestrator

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// fetchFields are the members of a record that name files.
func (p *prepared) fetchFields() (fields []string) {
	for _, m := range p.config.Fetch.Members {
		fields = append(fields, m.Field)
	}
	return fields
}

// fitFetch refuses to fetch files for a kernel that does not read them.
func (p *prepared) fitFetch() error {
	if len(p.config.Fetch.Members) == 0 || p.plan.Info.ReadsFetched {
		return nil
	}
	return fault.KernelUnsuited.New("kernel %s does not read fetched files: use a Python kernel, openai: or serve: with images, or one that declares that it reads them", p.config.Kernel.Name).Set("fetch")
}

// fetchSetup returns the settings for a worker.
func (c *order) fetchSetup() wire.Fetch {
	f := wire.Fetch{
		Root: c.Fetch.Root, MaxBytes: c.Fetch.MaxBytes, Concurrency: c.Fetch.Concurrency, PerHost: c.Fetch.PerHost,
		Timeout: c.Fetch.Timeout, Retries: c.Fetch.Retries, AllowPrivate: c.Fetch.AllowPrivate,
	}
	for _, m := range c.Fetch.Members {
		f.Members = append(f.Members, wire.FetchMember(m))
	}
	return f
}
