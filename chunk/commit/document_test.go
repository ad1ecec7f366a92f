package commit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// exampleInput is the input of the example in docs/internals/journal-format.md.
const exampleInput = "{\"id\":0}\n{\"id\":1}\n\nnot JSON\n{\"id\":3}\n"

// example runs the job of the example, with a part that is damaged between two runs, and
// returns its journal.
func example(t *testing.T) string {
	j := newJob(t)
	planned := plan(t, chunktest.Write(t, filepath.Join(j.dir, "in.jsonl"), []byte(exampleInput)), cutOptions{Chunks: 2})
	options := Options{Path: j.out, WorkDir: j.work(), Journal: j.journal(t)}
	commit := func(o *Output, c chunk.Chunk, records int, part string) {
		t.Helper()
		reader, err := input.OpenReader(c, 1<<20)
		chunktest.Must(t, err)
		defer reader.Close()
		var batch input.Batch
		chunktest.Must(t, reader.Read(&batch, records, 1<<20))
		c.File = "in.jsonl" // not the folder of this test
		p := NewPart(PartOptions{Path: filepath.Join(j.parts(), part), Chunk: c, Step: "embed", Device: "GPU 0"})
		for _, record := range batch.Records {
			if bytes.HasPrefix(record.Data, []byte("{")) {
				chunktest.Must(t, p.Write(Outcome{Lines: append(bytes.Clone(record.Data), '\n')}))
			} else {
				chunktest.Must(t, p.Write(Outcome{Record: record, Fault: fault.New(fault.Record, "invalid JSON").WithDetail("at byte 1")}))
			}
		}
		segment, err := p.Close(batch.Rest())
		chunktest.Must(t, err)
		chunktest.Must(t, o.Commit(segment))
	}
	o, err := Create(options)
	chunktest.Must(t, err)
	commit(o, planned[1], 2, "000000000002-9c1e04b7")
	commit(o, planned[0], 1, "000000000000-51f3aa02")
	chunktest.Must(t, o.Checkpoint(true))
	o.close() // killed; then a part is damaged
	chunktest.Must(t, os.Truncate(filepath.Join(j.parts(), "000000000002-9c1e04b7.out"), 10))

	var entries []Entry
	options.Journal, entries, err = OpenJournal(options.Journal.path)
	chunktest.Must(t, err)
	defer options.Journal.Close()
	state, err := Replay(entries)
	chunktest.Must(t, err)
	chunktest.Must(t, state.Verify(j.parts(), options.Journal))
	o, err = Resume(options, state)
	chunktest.Must(t, err)
	left := state.Remaining(planned)
	commit(o, left[0], 1, "000000000001-e07b6d19")
	commit(o, left[1], 2, "000000000002-3d5a8840")
	chunktest.Must(t, o.Finish())
	return contents(t, j.work())["journal"]
}

// TestFormatDocument: the example in the document matches what the code writes, and the
// document describes every field.
func TestFormatDocument(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "internals", "journal-format.md"))
	chunktest.Must(t, err)
	got := example(t)
	_, rest, _ := strings.Cut(string(document), "```journal\n")
	want, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("there is no example")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the example is not what the code writes: %s\n%s", diff, got)
	}
	if !strings.Contains(string(document), "```text\n"+exampleInput+"```") {
		t.Error("the input of the example is not shown")
	}
	for _, field := range fields(got) {
		if !strings.Contains(string(document), "`"+field+"`") {
			t.Errorf("field %s is not described", field)
		}
	}
}

// fields returns the names of all members in a journal.
func fields(journal string) []string {
	var all []string
	for pieces := strings.Split(journal, `"`); len(pieces) > 2; pieces = pieces[2:] {
		if strings.HasPrefix(pieces[2], ":") {
			all = append(all, pieces[1])
		}
	}
	return all
}
