package plugins

import (
	"slices"
	"sync"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// Source is a file of code that a kernel process has loaded: a script, a module.
type Source struct {
	// Path is absolute.
	Path string
	// Sum is the SHA-256, in hexadecimal digits, of the bytes that were loaded.
	Sum string
}

// SourceReporter is a kernel that knows which of the user's files its results depend
// on. A job refuses to mix results of different versions of them. The program itself
// need not be named.
//
// Sources returns every file that was loaded so far: the list only grows. It is called after Open, whether
// that failed or not, and after each batch, and must be safe to call from another
// goroutine than Process. A file that was loaded for a batch must be in it when the
// results of that batch are complete.
type SourceReporter interface {
	Sources() []Source
}

// sourceFeed sends each source once.
type sourceFeed struct {
	reporter SourceReporter // nil: the kernel loads nothing, or does not know

	mu    sync.Mutex
	sent  map[Source]bool
	count int // of what the kernel has named
}

func newSourceFeed(k Kernel) *sourceFeed {
	reporter, _ := k.(SourceReporter)
	return &sourceFeed{reporter: reporter, sent: make(map[Source]bool)}
}

// next is what was loaded since the last call.
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

// noteSources takes down what the kernel process says that it has loaded.
func (c *client) noteSources(list []*kernelpb.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, source := range list {
		c.sources = append(c.sources, Source{Path: source.GetPath(), Sum: source.GetSum()})
	}
}

// Sources are the files that the kernel process has loaded, as far as its answers say.
func (c *client) Sources() []Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.sources)
}
