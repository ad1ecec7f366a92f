package plugins

import "sync"

// Source is a code file that a kernel process has loaded, such as a script or a module.
type Source struct {
	// Path is absolute.
	Path string `json:"path"`
	// Sum is the SHA-256 of the loaded bytes in hexadecimal.
	Sum string `json:"sum"`
}

// SourceReporter is implemented by kernels that know which of the user's files their
// results depend on. A job refuses to mix results of different versions of those files.
// The program itself need not be listed.
//
// Sources returns every file loaded so far: the list only grows. It is called after Open,
// even if Open failed, and after each batch. It must be safe to call from another
// goroutine than Process. It must include every file that was loaded for a batch when the
// results of that batch are complete.
type SourceReporter interface {
	Sources() []Source
}

// Warner is implemented by kernels that report problems to the user although no record
// fails, for example that a program was restarted. gpurun shows each warning once.
//
// Warnings returns all warnings so far; the kernel must keep the list short. It is called
// after each batch, and must be safe to call from another goroutine than Process.
type Warner interface {
	Warnings() []string
}

// MemoryReporter is implemented by kernels that know how much device memory their
// framework holds. Memory is called after each batch, possibly during another: it must be
// fast, and safe to call from another goroutine than Process.
type MemoryReporter interface {
	Memory() FrameworkMemory
}

// FrameworkMemory is the device memory that a framework holds, in bytes. The zero value
// means unknown.
type FrameworkMemory struct {
	// Library is the framework's name: "torch".
	Library string `json:"library,omitempty"`
	// Allocated is in use by tensors. Cached is everything that the framework holds,
	// including Allocated.
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
}

// ImportReporter is implemented by kernels that know how long the imports of their code took.
// Imports is called after Open.
type ImportReporter interface {
	Imports() Imports
}

// Report is what a kernel process tells of itself with a reply.
type Report struct {
	Sources  []Source         `json:"sources,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
	Memory   *FrameworkMemory `json:"memory,omitempty"`
	// Imports are reported once.
	Imports *Imports `json:"imports,omitempty"`
}

// reporter tells each thing once.
type reporter struct {
	sources  SourceReporter // nil if the kernel is not one
	warnings Warner
	memory   MemoryReporter
	imports  ImportReporter // nil, too, once they are reported

	mu    sync.Mutex
	told  map[any]bool // sources and warnings
	count int          // of the kernel's last sources
	held  FrameworkMemory
}

func newReporter(k Kernel) *reporter {
	r := &reporter{told: make(map[any]bool)}
	r.sources, _ = k.(SourceReporter)
	r.warnings, _ = k.(Warner)
	r.memory, _ = k.(MemoryReporter)
	r.imports, _ = k.(ImportReporter)
	return r
}

// next returns the JSON of what is new since the last call; nil if nothing is.
func (r *reporter) next() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var report Report
	if r.sources != nil {
		if all := r.sources.Sources(); len(all) != r.count {
			r.count, report.Sources = len(all), untold(r, all)
		}
	}
	if r.warnings != nil {
		report.Warnings = untold(r, r.warnings.Warnings())
	}
	if held := r.heldMemory(); held != r.held {
		r.held, report.Memory = held, &held
	}
	if r.imports != nil {
		report.Imports, r.imports = new(r.imports.Imports()), nil
	}
	if report.Sources == nil && report.Warnings == nil && report.Memory == nil && report.Imports == nil {
		return nil
	}
	return encode(report)
}

func untold[T comparable](r *reporter, list []T) (news []T) {
	for _, one := range list {
		if !r.told[one] {
			r.told[one] = true
			news = append(news, one)
		}
	}
	return news
}

func (r *reporter) heldMemory() FrameworkMemory {
	if r.memory == nil {
		return FrameworkMemory{}
	}
	return r.memory.Memory()
}
