package fetch

import (
	"context"
	"io"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// Item is one file. Only one goroutine may wait for it and release it.
type Item struct {
	fetcher *Fetcher
	ctx     context.Context
	what    File

	urgent    chan struct{} // closed when a caller waits for it
	hurried   bool          // belongs to the caller
	done      chan struct{} // closed when it is fetched, or failed
	failure   *fault.Error
	retries   int
	contents  contents
	mu        sync.Mutex
	finished  bool
	abandoned bool
}

func (f *Fetcher) newItem(ctx context.Context, what File) *Item {
	return &Item{fetcher: f, ctx: ctx, what: what, urgent: make(chan struct{}), done: make(chan struct{})}
}

// Wait waits until the file is fetched and returns why it could not be: a failure of kind
// Fetch, or Canceled if a context ended. Other fetches make room in memory for this one.
func (i *Item) Wait(ctx context.Context) *fault.Error {
	select {
	case <-i.done:
		return i.failure
	default:
	}
	i.Hurry()
	select {
	case <-i.done:
		return i.failure
	case <-ctx.Done():
		return canceled()
	}
}

// Hurry makes the fetch wait for memory no longer: its record is next. Like Wait, it must not
// be called concurrently.
func (i *Item) Hurry() {
	if !i.hurried {
		i.hurried = true
		close(i.urgent)
	}
}

// Bytes returns the file. It is valid until Release; Wait must have returned nil.
func (i *Item) Bytes() []byte { return i.contents.data }

// Retries returns how many times the fetch was tried again. Wait must have returned.
func (i *Item) Retries() int { return i.retries }

// Release frees the file's memory. If it is still being fetched, that happens when the
// fetch ends: the caller should cancel its context.
func (i *Item) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.abandoned {
		return
	}
	i.abandoned = true
	if i.finished {
		i.contents.free()
	}
}

// finish ends the fetch.
func (i *Item) finish(failure *fault.Error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if failure != nil {
		i.failure = failure.Bounded()
	}
	i.finished = true
	if failure != nil || i.abandoned {
		i.contents.free()
	}
	close(i.done)
}

// run fetches the file.
func (i *Item) run() {
	i.contents = contents{item: i}
	i.finish(i.fetch())
}

func (i *Item) fetch() *fault.Error {
	if i.ctx.Err() != nil {
		return canceled()
	}
	if i.what.Part != nil {
		return readPart(&i.contents, i.what.Part)
	}
	t, failure := parse(i.what.Name)
	if failure != nil {
		return failure
	}
	switch {
	case t.data != "":
		return decodeData(&i.contents, t.data)
	case t.url != nil:
		return i.fetcher.web.fetch(i, t.url)
	}
	return i.fetcher.root.read(&i.contents, t.path)
}

// readPart reads a part of a file that is open.
func readPart(c *contents, part *io.SectionReader) *fault.Error {
	err := c.read(part, part.Size())
	if failure := fault.As(err); failure != nil || err == nil {
		return failure
	}
	return failed("read the bytes of the record: %w", inner(err))
}

// tooLarge is the failure of a file that exceeds the limit. It does not tell the size, since that of
// an endless response is unknown.
func (c *contents) tooLarge() *fault.Error {
	return failed("the file has more than fetch-max-bytes %d", c.limit())
}

// contents is the memory that a file is read into. It is counted in the fetcher's room.
type contents struct {
	item    *Item
	data    []byte // what has been read, with room for more
	memory  Memory // nil: garbage-collected memory
	counted int64
	clock   *timing // stands still while the file waits for room; nil if there is none
}

// limit is the most bytes that the file may have.
func (c *contents) limit() int64 { return c.item.fetcher.options.MaxBytes }

// reserve makes room for size bytes in all and keeps the bytes read so far. It waits until
// that many more fit in memory.
func (c *contents) reserve(size int) *fault.Error {
	if size <= cap(c.data) {
		return nil
	}
	c.clock.pause()
	defer c.clock.resume()
	if !c.item.fetcher.room.take(c.item.ctx, c.item.urgent, int64(size)) {
		return canceled()
	}
	var memory Memory
	if allocate := c.item.fetcher.options.Allocate; allocate != nil {
		memory = allocate(size)
	}
	var grown []byte
	if memory != nil {
		grown = memory.Bytes()[:len(c.data):size]
	} else {
		grown = make([]byte, len(c.data), size)
	}
	copy(grown, c.data)
	c.free()
	c.data, c.memory, c.counted = grown, memory, int64(size)
	return nil
}

// free releases the memory.
func (c *contents) free() {
	if c.memory != nil {
		c.memory.Free()
	}
	if c.counted > 0 {
		c.item.fetcher.room.give(c.counted)
	}
	c.data, c.memory, c.counted = nil, nil, 0
}

// reset forgets what has been read, for another try.
func (c *contents) reset() { c.data = c.data[:0] }

// firstRead is how much room a file of unknown size gets first.
const firstRead = 64 << 10

// read reads r to its end. size is its expected size, negative if that is unknown. The error is a
// *fault.Error unless r failed.
func (c *contents) read(r io.Reader, size int64) error {
	if size > c.limit() {
		return c.tooLarge()
	}
	want := firstRead
	if size >= 0 {
		want = int(size) + 1 // so that the end is found without growing
	}
	if err := c.reserve(want); err != nil {
		return err
	}
	for {
		if len(c.data) == cap(c.data) {
			if err := c.reserve(2 * cap(c.data)); err != nil {
				return err
			}
		}
		n, err := r.Read(c.data[len(c.data):cap(c.data)])
		c.data = c.data[:len(c.data)+n]
		if int64(len(c.data)) > c.limit() {
			return c.tooLarge()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
