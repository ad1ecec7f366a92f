package input

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
)

// shrink makes blocks and reads so small that their borders fall everywhere.
func shrink(t testing.TB, block int64, read, smallest int) {
	b, r, m := blockBytes, readBytes, minRead
	t.Cleanup(func() { blockBytes, readBytes, minRead = b, r, m })
	blockBytes, readBytes, minRead = block, read, smallest
}

// cutOptions say how to split one plain file.
type cutOptions struct {
	Limits
	Chunks, BatchSize int
	Split             Split
	Window            *chunk.Chunk
}

// cutFile counts a file and splits it.
func cutFile(t testing.TB, path string, options cutOptions) Cut {
	t.Helper()
	count, err := CountFile(t.Context(), path, options.Limits, options.Window)
	chunktest.Must(t, err)
	cut, err := count.Cut(options.Chunks, options.BatchSize)
	chunktest.Must(t, err)
	return cut
}

// open opens one plain file.
func open(t testing.TB, path string, options cutOptions) *Source {
	t.Helper()
	info, err := os.Stat(path)
	chunktest.Must(t, err)
	section := Section{Files: []SectionFile{{}}, Path: path, Window: options.Window}
	if options.Window == nil && options.Limits != (Limits{}) || options.Split.Counts(info.Size()) {
		cut := cutFile(t, path, options)
		section.Cut = &cut
	}
	size := info.Size()
	if options.Window != nil {
		size = options.Window.Length
	}
	source, err := Open([]Section{section}, Options{ChunkBytes: chunk.CeilDiv(size, int64(max(1, options.Chunks))), Dir: filepath.Join(t.TempDir(), "spool")})
	chunktest.Must(t, err)
	return source
}

// drain takes all chunks.
func drain(t testing.TB, source *Source) []chunk.Chunk {
	t.Helper()
	var all []chunk.Chunk
	for {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
}

// readOptions are the arguments of a reader.
type readOptions struct {
	maxRecords, maxBytes int
	maxRecord            int64
}

var plain = readOptions{maxRecords: 100, maxBytes: 1 << 20, maxRecord: 16 << 20}

// read reads a chunk to its end.
func readChunk(c chunk.Chunk, o readOptions) ([]chunktest.Line, error) {
	reader, err := OpenReader(c, o.maxRecord)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var all []chunktest.Line
	var batch Batch
	for {
		err := reader.Read(&batch, o.maxRecords, o.maxBytes)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, lines(&batch)...)
		batch.Release()
	}
}

func lines(b *Batch) []chunktest.Line {
	var all []chunktest.Line
	for _, r := range b.Records {
		all = append(all, chunktest.Line{Data: string(r.Data), Index: r.Index, Line: r.Line, Offset: r.Offset})
	}
	return all
}

// readAll reads chunks one after another.
func readAll(t testing.TB, chunks []chunk.Chunk) []chunktest.Line {
	t.Helper()
	var all []chunktest.Line
	for _, c := range chunks {
		got, err := readChunk(c, plain)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func closeSource(t testing.TB, source *Source) {
	t.Helper()
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}

// noLeaks fails the test if it leaks a goroutine.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// holds is what earlier runs have computed. All chunks are returned nevertheless.
type holds func(first, records int64) bool

func (h holds) Holds(first, records int64) bool              { return h(first, records) }
func (h holds) Remaining(chunks []chunk.Chunk) []chunk.Chunk { return chunks }
