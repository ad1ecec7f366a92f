package parallel

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/gpurun/gpurun/chunk/input/format"
)

const (
	// BlockBytes is the size of the blocks of lines that groups pass on, unless one line is larger.
	BlockBytes = 256 << 10
	// aheadBytes limits the lines that wait for their turn, in all groups together.
	aheadBytes = 64 << 20
	// maxThreads limits the groups that are decoded at the same time, each of which takes memory.
	maxThreads = 8
)

// Group decodes a group of rows, and passes on blocks of lines.
type Group func(ctx context.Context, memory *Share, send func(Block) error) error

// Block is some lines of a group, with what travels beside them.
type Block struct {
	Lines []byte
	Blobs [][]format.Blob // of each line, if there are any
	// Beside is how many bytes the blobs have.
	Beside int
}

// read has the memory of blocks that were read. Clearing new memory takes a tenth of the time of decoding.
var read = sync.Pool{New: func() any { return new([]byte) }}

// NewLines returns memory for the lines of a block, which have about this size.
func NewLines(size int64) []byte {
	lines := *read.Get().(*[]byte)
	if int64(cap(lines)) >= size {
		return lines[:0]
	}
	return make([]byte, 0, size)
}

// Reader reads the rows of a file as JSON lines, in order.
type Reader struct {
	blobs format.BlobQueue // beside the lines that were read

	ctx     context.Context
	cancel  context.CancelFunc
	groups  chan chan block // in order
	stopped chan struct{}

	current chan block // the group being read
	lines   []byte     // the block being read
	format.Blocks
}

// block is some lines of a group, or the error that ended it.
type block struct {
	Block
	err error
}

// Limits are what decoding may take.
type Limits struct {
	Threads int
	// Memory is the most bytes, What takes them, for messages: "the pages of the row group".
	Memory int64
	What   string
}

// Lines returns the lines of groups. next returns the next group, or io.EOF after the last; it is
// not called concurrently. Close stops decoding and waits until that has happened.
func Lines(ctx context.Context, limits Limits, next func() (Group, error)) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	threads := min(limits.Threads, maxThreads)
	l := &Reader{ctx: ctx, cancel: cancel, groups: make(chan chan block, threads), stopped: make(chan struct{})}
	l.Next = l.next
	go l.decode(threads, NewMemory(ctx, limits.What, limits.Memory), next)
	return l
}

// decode starts a goroutine for each group.
func (l *Reader) decode(threads int, memory *Memory, next func() (Group, error)) {
	defer close(l.stopped)
	defer close(l.groups)
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, threads)
	depth := max(aheadBytes/BlockBytes/(2*threads), 1)
	for {
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		group, err := next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			group = func(context.Context, *Share, func(Block) error) error { return err }
		}
		blocks, share := make(chan block, depth), memory.Join()
		running.Go(func() {
			defer func() { <-slots }()
			defer share.Leave()
			l.run(group, share, blocks)
		})
		select {
		case l.groups <- blocks:
		case <-l.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// run decodes a group into blocks, and closes the channel.
func (l *Reader) run(group Group, memory *Share, blocks chan<- block) {
	defer close(blocks)
	send := func(b block) error {
		select {
		case blocks <- b:
			return nil
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	err := group(l.ctx, memory, func(b Block) error {
		err := send(block{Block: b})
		for size := len(b.Lines) + b.Beside; err == nil && size >= 2*BlockBytes && b.Beside > 0; size -= BlockBytes {
			err = send(block{}) // a large block takes the place of several
		}
		return err
	})
	if err != nil {
		_ = send(block{err: err})
	}
}

// next returns the next block. The memory of the one before it is used again.
func (l *Reader) next() ([]byte, error) {
	if before := l.lines; cap(before) >= BlockBytes {
		l.lines = nil
		read.Put(&before)
	}
	for {
		if l.current == nil {
			next, ok := <-l.groups
			if !ok {
				return nil, cmp.Or(l.ctx.Err(), io.EOF)
			}
			l.current = next
		}
		b, ok := <-l.current
		if ok {
			l.blobs.Add(b.Blobs...)
			l.lines = b.Lines
			return b.Lines, b.err
		}
		if err := l.ctx.Err(); err != nil { // the group may be incomplete
			return nil, err
		}
		l.current = nil
	}
}

// After returns the lines behind those that were skipped, with the values beside them, if there are any.
func (l *Reader) After(skipped int64, values int) format.Lines {
	lines := format.Lines{ReadCloser: l, First: skipped + 1, Skipped: skipped}
	if values > 0 {
		lines.Blobs = l.blobs.Next
	}
	return lines
}

// Close stops decoding and waits until that has happened.
func (l *Reader) Close() error {
	l.cancel()
	<-l.stopped
	return nil
}
