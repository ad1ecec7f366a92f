package plugins

import (
	"sync"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// Source is a code file that a kernel process has loaded, such as a script or a module.
type Source struct {
	// Path is absolute.
	Path string
	// Sum is the SHA-256 of the loaded bytes in hexadecimal.
	Sum string
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

// sourceFeed sends each source once.
type sourceFeed struct {
	reporter SourceReporter // nil if the kernel is not one

	mu    sync.Mutex
	sent  map[Source]bool
	count int // length of the kernel's last list
}

func newSourceFeed(k Kernel) *sourceFeed {
	reporter, _ := k.(SourceReporter)
	return &sourceFeed{reporter: reporter, sent: make(map[Source]bool)}
}

// next returns the files loaded since the last call.
func (f *sourceFeed) next() []*kernelpb.Source {
	if f.reporter == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.reporter.Sources()
	if len(all) == f.count {
		return nil
	}
	f.count = len(all)
	var list []*kernelpb.Source
	for _, source := range all {
		if !f.sent[source] {
			f.sent[source] = true
			list = append(list, &kernelpb.Source{Path: valid(source.Path), Sum: valid(source.Sum)})
		}
	}
	return list
}
