// Package fetch reads the files that records name, ahead of the kernel that needs them: a
// path below a root folder, a file: URL, an http: or https: URL, or a data: URI.
//
// What a record names is not trusted. A path cannot leave the root folder, a URL cannot
// reach a private address, and size, time, redirects and memory are limited. A file that
// cannot be read is a *fault.Error of kind Fetch. Its message depends on the record alone
// and never contains the query of a URL, which may hold a signature.
//
//	f := fetch.New(fetch.Options{Fetch: wire.Fetch{Root: "/data"}})
//	item := f.Start(ctx, fetch.Named("images/1.png")) // returns at once, unless all goroutines are busy
//	…
//	if failure := item.Wait(ctx); failure == nil {
//		use(item.Bytes())
//	}
//	item.Release()
package fetch

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Options configure a Fetcher. The zero value of a field selects its default. The Members that name
// files do not matter here.
type Options struct {
	wire.Fetch
	// HoldBytes is the most bytes in memory: of files that are being fetched and of those
	// that are not released. Files that a caller waits for are exempt.
	HoldBytes int64
	// Allocate returns memory of at least size bytes for a file, or nil; the file is then
	// read into garbage-collected memory. It must be safe for concurrent use.
	Allocate func(size int) Memory

	permit func(netip.AddrPort) bool // for tests: addresses that are permitted
	limits limits                    // for tests
}

// File is what to fetch: what a record names or, if Part is set, a part of a file that is open.
type File struct {
	Name string
	Part *io.SectionReader
}

// Named is the file that a record names.
func Named(name string) File { return File{Name: name} }

// Memory holds a file.
type Memory = interface {
	// Bytes returns the memory, always the same slice.
	Bytes() []byte
	// Free releases it.
	Free()
}

// Fetcher fetches files. Its methods are safe for concurrent use.
type Fetcher struct {
	options Options
	room    *room
	root    root
	web     *web

	queue   chan *Item
	started chan struct{} // one for each goroutine
	closed  chan struct{}
	running sync.WaitGroup
}

// New returns a Fetcher. The caller must close it.
func New(o Options) *Fetcher {
	setDefault(&o.MaxBytes, 64<<20)
	setDefault(&o.Concurrency, 64)
	setDefault(&o.PerHost, 32)
	setDefault(&o.Timeout, time.Minute)
	setDefault(&o.Retries, 4)
	setDefault(&o.HoldBytes, 128<<20)
	setDefault(&o.limits, defaultLimits)
	return &Fetcher{
		options: o, room: newRoom(o.HoldBytes), root: root{path: o.Root}, web: newWeb(o),
		queue: make(chan *Item), started: make(chan struct{}, o.Concurrency), closed: make(chan struct{}),
	}
}

func setDefault[T comparable](member *T, value T) {
	var zero T
	if *member == zero {
		*member = value
	}
}

// Start begins to fetch a file. Files are begun in the order of the calls; Start waits while as many
// as may be fetched at a time are. Canceling ctx cancels the fetch.
func (f *Fetcher) Start(ctx context.Context, what File) *Item {
	item := f.newItem(ctx, what)
	select {
	case f.queue <- item: // a goroutine is idle
		return item
	default:
	}
	select {
	case f.queue <- item:
	case f.started <- struct{}{}:
		f.running.Go(func() { f.work(item) })
	case <-ctx.Done():
		item.finish(canceled())
	case <-f.closed:
		item.finish(canceled())
	}
	return item
}

// work runs an item, and those that follow.
func (f *Fetcher) work(item *Item) {
	for {
		item.run()
		select {
		case item = <-f.queue:
		case <-f.closed:
			return
		}
	}
}

// Concurrency returns how many files are fetched at a time.
func (f *Fetcher) Concurrency() int { return f.options.Concurrency }

// Do fetches a file in the calling goroutine, whatever else is being fetched.
func (f *Fetcher) Do(ctx context.Context, what File) *Item {
	item := f.newItem(ctx, what)
	item.Hurry()
	item.run()
	return item
}

// Close waits for the fetches that have begun, which the caller should have canceled, and
// closes all connections. Items stay valid.
func (f *Fetcher) Close() {
	close(f.closed)
	f.running.Wait()
	f.web.close()
	f.root.close()
}

// canceled is the failure of a fetch whose result is no longer needed.
func canceled() *fault.Error { return fault.Interrupted.New("the fetch was canceled") }

// failed returns the failure of a fetch.
func failed(format string, args ...any) *fault.Error { return fault.FetchFailed.New(format, args...) }
