package parquet

import (
	"cmp"
	"context"
	"io"
	"sync"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
)

const (
	// blockBytes is the size of the blocks of lines that are passed on, unless one line is
	// larger.
	blockBytes = 256 << 10
	// aheadBytes limits the lines that wait for their turn, in all row groups together.
	aheadBytes = 64 << 20
	// maxThreads limits the row groups that are decoded at the same time, each of which
	// has the current pages of all its columns in memory.
	maxThreads = 8
)

// lines are the rows of a file as JSON lines, in order.
type lines struct {
	ctx     context.Context
	cancel  context.CancelFunc
	groups  chan chan block // in order
	stopped chan struct{}

	current chan block // the row group being read
	format.Blocks
	blobs format.BlobQueue
}

// block is some lines of a row group, or the error that ended it.
type block struct {
	lines []byte
	blobs [][]format.Blob // of the lines
	err   error
}

// lines returns those of a row group and of all that follow it.
func (f *File) lines(ctx context.Context, first int) *lines {
	ctx, cancel := context.WithCancel(ctx)
	threads := min(f.threads, maxThreads)
	depth := max(aheadBytes/blockBytes/(2*threads), 1)
	l := &lines{ctx: ctx, cancel: cancel, groups: make(chan chan block, threads), stopped: make(chan struct{})}
	l.Next = l.next
	go func() {
		defer close(l.stopped)
		defer close(l.groups)
		var running sync.WaitGroup
		defer running.Wait()
		slots := make(chan struct{}, threads)
		memory := parallel.NewMemory(ctx, pages, f.memory)
		for i := first; i < f.Groups(); i++ {
			blocks := make(chan block, depth)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			share := memory.Join()
			running.Go(func() {
				defer func() { <-slots }()
				defer share.Leave()
				f.decode(ctx, i, share, blocks)
			})
			select {
			case l.groups <- blocks:
			case <-ctx.Done():
				return
			}
		}
	}()
	return l
}

// decode decodes a row group into blocks, and closes the channel.
func (f *File) decode(ctx context.Context, group int, memory *parallel.Share, blocks chan<- block) {
	defer close(blocks)
	send := func(b block) error {
		select {
		case blocks <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var last block
	err := f.eachRow(ctx, group, memory, func(w *rowWriter) error {
		err := w.line()
		size := len(w.dst) + w.beside.size
		if err == nil && size >= blockBytes {
			err = send(block{lines: w.dst, blobs: w.beside.rows})
			w.dst, w.beside = make([]byte, 0, len(w.dst)+blockBytes/8), rowBlobs{}
		}
		for ; err == nil && size >= 2*blockBytes && w.blobs > 0; size -= blockBytes {
			err = send(block{}) // a large block takes the place of several
		}
		last = block{lines: w.dst, blobs: w.beside.rows}
		return err
	})
	if err != nil {
		last = block{err: err}
	}
	_ = send(last)
}

// next returns the next block.
func (l *lines) next() ([]byte, error) {
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
			l.blobs.Add(b.blobs...)
			return b.lines, b.err
		}
		if err := l.ctx.Err(); err != nil { // the row group may be incomplete
			return nil, err
		}
		l.current = nil
	}
}

// Close stops decoding and waits until that has happened.
func (l *lines) Close() error {
	l.cancel()
	<-l.stopped
	return nil
}
