package plugins

import (
	"reflect"
	"sync"
)

// Source is a code file that a kernel process has loaded, such as a script or a module.
type Source struct {
	// Path is absolute.
	Path string `json:"path"`
	// Sum is the SHA-256 of the loaded bytes in hexadecimal.
	Sum string `json:"sum"`
}

// Reporter is implemented by kernels that report what they have loaded, problems, or memory. Report
// returns everything so far. It is called after Open, even if Open failed, and after each batch: it must
// be fast, and safe to call from another goroutine than Process.
type Reporter interface {
	Report() Report
}

// Report is what a kernel reports about itself.
type Report struct {
	// Sources are the user's files that the results depend on, all that were loaded so far: the list
	// only grows. A job refuses to mix results of different versions of those files. When the results
	// of a batch are complete, it must include every file that was loaded for them. The program
	// itself need not be listed.
	Sources []Source `json:"sources,omitempty"`
	// Warnings are problems although no record fails, for example that a program was restarted: all
	// so far. The kernel must keep the list short. gpurun shows each warning once.
	Warnings []string `json:"warnings,omitempty"`
	// Memory is the device memory that the kernel's framework holds, if it knows that.
	Memory FrameworkMemory `json:"memory,omitzero"`
	// Imports are how long the imports of its code took, known when it is open.
	Imports Imports `json:"imports,omitzero"`
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

// reporter sends each part of a kernel's report once.
type reporter struct {
	kernel Reporter // nil if the kernel is not one

	mu    sync.Mutex
	told  map[any]bool // sources and warnings
	count int          // of the kernel's last sources
	last  Report       // its memory and imports
}

func newReporter(k Kernel) *reporter {
	r := &reporter{told: make(map[any]bool)}
	r.kernel, _ = k.(Reporter)
	return r
}

// next returns the JSON of what is new since the last call; nil if nothing is.
func (r *reporter) next() []byte {
	if r.kernel == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.kernel.Report()
	report := Report{Warnings: untold(r, now.Warnings)}
	if len(now.Sources) != r.count {
		r.count, report.Sources = len(now.Sources), untold(r, now.Sources)
	}
	if now.Memory != r.last.Memory {
		report.Memory = now.Memory
	}
	if now.Imports.Took != r.last.Imports.Took {
		report.Imports = now.Imports
	}
	r.last = now
	if reflect.ValueOf(report).IsZero() {
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

// memory returns what the kernel's framework holds, to be reported at once.
func (r *reporter) memory() FrameworkMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kernel != nil {
		r.last.Memory = r.kernel.Report().Memory
	}
	return r.last.Memory
}
