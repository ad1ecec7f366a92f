package orchestrator

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/wire"
)

const (
	// maxFetchMembers is how many members may name files.
	maxFetchMembers = 16
	// maxFetchBytes is the most that the files of one record may have together: a record is
	// sent to the kernel in one message.
	maxFetchBytes = 900 << 20
)

// checkFetch rejects settings that no record could satisfy.
func (c Config) checkFetch() error {
	var names []string
	for _, m := range c.Fetch.Members {
		switch {
		case strings.TrimSpace(m.Name) == "" || strings.TrimSpace(m.Field) == "":
			return fault.New(fault.Usage, "a file to fetch needs a name and the member that names it").Set("fetch")
		case m.Name == m.Field:
			return fault.New(fault.Usage, "the file that member %q names needs another name: the kernel reads both", m.Field).Set("fetch")
		case slices.Contains(names, m.Name):
			return fault.New(fault.Usage, "two files to fetch are named %q", m.Name).Set("fetch")
		}
		names = append(names, m.Name)
	}
	if len(names) > maxFetchMembers {
		return fault.New(fault.Usage, "at most %d files can be fetched for a record", maxFetchMembers).Set("fetch")
	}
	if n := max(1, int64(len(names))); c.Fetch.MaxBytes > maxFetchBytes/n {
		return fault.New(fault.Usage, "the files of a record may have at most %d MiB together, each at most %d MiB", maxFetchBytes>>20, maxFetchBytes/n>>20).Set("fetch-max-bytes")
	}
	if c.Fetch.Root != "" && !files.IsFolder(c.Fetch.Root) {
		return fault.New(fault.Usage, "the root folder %s of the files to fetch does not exist", c.Fetch.Root).Set("fetch-root")
	}
	return nil
}

// withFetch sets the folder that paths are relative to.
func (c Config) withFetch() Config {
	switch {
	case len(c.Fetch.Members) == 0:
		c.Fetch.Root = ""
	case c.Fetch.Root != "":
		c.Fetch.Root = absolute(c.Fetch.Root)
	default:
		c.Fetch.Root = c.inputFolder()
	}
	return c
}

// inputFolder returns the folder of the input's files, the working folder if there are only
// streams, and "" if the files are in different folders: a path then has no root.
func (c Config) inputFolder() string {
	paths := c.inputPaths()
	if len(paths) == 0 {
		return absolute(c.Dir)
	}
	folder := filepath.Dir(absolute(paths[0]))
	for _, path := range paths[1:] {
		if filepath.Dir(absolute(path)) != folder {
			return ""
		}
	}
	return folder
}

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
	return fault.New(fault.Usage, "kernel %s does not read fetched files: use a Python kernel, openai: or serve: with images, or one that declares that it reads them", p.config.Kernel.Name).Set("fetch")
}

// fetchSetup returns the settings for a worker.
func (c Config) fetchSetup() wire.Fetch {
	f := wire.Fetch{
		Root: c.Fetch.Root, MaxBytes: c.Fetch.MaxBytes, Concurrency: c.Fetch.Concurrency, PerHost: c.Fetch.PerHost,
		Timeout: c.Fetch.Timeout, Retries: c.Fetch.Retries, AllowPrivate: c.Fetch.AllowPrivate,
	}
	for _, m := range c.Fetch.Members {
		f.Members = append(f.Members, wire.FetchMember(m))
	}
	return f
}

// fetchPrint is what of the fetching shapes the output.
type fetchPrint struct {
	Members  []FetchMember `json:"members"`
	Root     string        `json:"root"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

func takeFetchPrint(c Config) *fetchPrint {
	if len(c.Fetch.Members) == 0 {
		return nil
	}
	return &fetchPrint{Members: c.Fetch.Members, Root: c.Fetch.Root, MaxBytes: c.Fetch.MaxBytes}
}

// restoreFetch makes a retry fetch the same files as the job.
func (r *rerun) restoreFetch(c *Config) {
	was := r.manifest.Fingerprint.Fetch
	if was == nil {
		return
	}
	c.Fetch.Members = was.Members
	setDefault(&c.Fetch.Root, was.Root)
	setDefault(&c.Fetch.MaxBytes, was.MaxBytes)
	c.Fetch.AllowPrivate = c.Fetch.AllowPrivate || r.manifest.Launch.FetchPrivate
}
