package commit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
)

// linesPart returns the name of a part of plain lines.
func linesPart(number int) string { return partName(number, encode.Lines()) }

// readLines returns the entries of a journal, the size of their lines, and how many intact
// lines after them are lost.
func readLines(r io.Reader, path string) ([]Entry, int64, int, error) {
	c, err := readJournal(r, path)
	return c.entries, c.size, c.lost, err
}

// decoded returns the lines of an encoded file.
func decoded(t testing.TB, format encode.Format, data []byte) []byte {
	t.Helper()
	if !format.Encodes() {
		return data
	}
	in, err := format.Codec.Decode(bytes.NewReader(data))
	chunktest.Must(t, err)
	defer in.Close()
	lines, err := io.ReadAll(in)
	chunktest.Must(t, err)
	return lines
}

// cutOptions say how to split a file.
type cutOptions struct {
	input.Limits
	Chunks, BatchSize int
	Split             input.Split
}

// plan returns the chunks of a file.
func plan(t testing.TB, path string, options cutOptions) []chunk.Chunk {
	t.Helper()
	if options.Split == input.SplitBytes && options.Limits == (input.Limits{}) {
		info, err := os.Stat(path)
		chunktest.Must(t, err)
		source, err := input.Open([]input.Section{{Files: []input.SectionFile{{}}, Path: path}}, input.Options{ChunkBytes: chunk.CeilDiv(info.Size(), int64(options.Chunks))})
		chunktest.Must(t, err)
		defer source.Close()
		return drain(t, source)
	}
	count, err := input.CountFile(t.Context(), path, options.Limits, nil)
	chunktest.Must(t, err)
	cut, err := count.Cut(options.Chunks, options.BatchSize)
	chunktest.Must(t, err)
	return cut.Chunks
}

// counted returns the source of a file that was counted and split before.
func counted(chunks []chunk.Chunk, records int64, before input.Earlier) (*input.Source, error) {
	cut := &input.Cut{Chunks: chunks, Records: records, Sums: &input.Sums{}}
	return input.Open([]input.Section{{Files: []input.SectionFile{{}}, Path: "in.jsonl", Cut: cut}}, input.Options{Earlier: before})
}

// drain takes all chunks.
func drain(t testing.TB, source *input.Source) (all []chunk.Chunk) {
	t.Helper()
	for {
		c, err := source.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		chunktest.Must(t, err)
		all = append(all, c)
	}
}

// readAll reads chunks one after another.
func readAll(t testing.TB, chunks []chunk.Chunk) (all []chunktest.Line) {
	t.Helper()
	for _, c := range chunks {
		reader, err := input.OpenReader(c, 16<<20)
		chunktest.Must(t, err)
		var batch input.Batch
		for err = reader.Read(&batch, 100, 1<<20); err == nil; err = reader.Read(&batch, 100, 1<<20) {
			for _, r := range batch.Records {
				all = append(all, chunktest.Line{Data: string(r.Data), Index: r.Index, Line: r.Line, Offset: r.Offset})
			}
			batch.Release()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		reader.Close()
	}
	return all
}

// held returns the files that hold the durable output.
func held(state State, options Options) (all [chunk.PartFiles][]piece) {
	for _, f := range options.files() {
		if f.kind < chunk.PartFiles {
			all[f.kind] = state.held(options, f)
		}
	}
	return all
}
