package commit

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// trial is a small version of a job as the orchestrator runs it: it splits the input,
// computes pieces in any order, commits, and resumes after any interruption. It does not
// use testing.T, so that a child process can run it too.
type trial struct {
	r       *rand.Rand
	dir     string // out.jsonl or out/, err.jsonl and work/ are in it
	apart   bool
	parts   int64 // bytes of a part, 0 for one file
	replace bool  // an existing output
	format  encode.Format
	unit    int64
	planned []chunk.Chunk
	batch   int

	journal *Journal
	output  *Output
	todo    []chunk.Chunk
	done    bool // complete, with all files renamed
}

func (tr *trial) options() Options {
	options := Options{Path: filepath.Join(tr.dir, "out.jsonl"), WorkDir: filepath.Join(tr.dir, "work"), Journal: tr.journal, Replace: tr.replace, Format: tr.format, UnitBytes: tr.unit}
	if tr.parts > 0 {
		options.Path, options.PartBytes = filepath.Join(tr.dir, "out")+"/", tr.parts
	}
	if tr.apart {
		options.Errors = filepath.Join(tr.dir, "err.jsonl")
	}
	if len(tr.planned) > 0 {
		options.First = tr.planned[0].First
	}
	return options
}

func (tr *trial) path(names ...string) string {
	return filepath.Join(append([]string{tr.dir, "work"}, names...)...)
}

// open starts the job, or resumes the one in the folder.
func (tr *trial) open() error {
	if err := os.MkdirAll(tr.path(PartsDir), 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(tr.path("journal")); err != nil {
		if tr.journal, err = CreateJournal(tr.path("journal")); err != nil {
			return err
		}
		tr.todo = append([]chunk.Chunk{}, tr.planned...)
		tr.output, err = Create(tr.options())
		return err
	}
	journal, entries, err := OpenJournal(tr.path("journal"))
	if err != nil {
		return err
	}
	tr.journal = journal
	state, err := Replay(entries)
	if err != nil {
		return err
	}
	good, whole, err := state.CheckOutput(context.Background(), tr.options())
	if err != nil {
		return err
	}
	if !whole {
		if err := state.CutBack(good, journal); err != nil {
			return err
		}
	}
	if state.Complete {
		tr.done = true
		return Complete(tr.options(), state)
	}
	if err := state.Verify(tr.path(PartsDir), journal); err != nil {
		return err
	}
	if err := tr.plan(state); err != nil {
		return err
	}
	tr.output, err = Resume(tr.options(), state)
	return err
}

// plan finds what remains, for all chunks at once or one after another.
func (tr *trial) plan(state State) error {
	tr.todo = state.Remaining(tr.planned)
	if tr.r.IntN(2) == 0 {
		tr.todo = nil
		source, err := counted(tr.planned, 0, state)
		if err != nil {
			return err
		}
		for {
			c, err := source.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			tr.todo = append(tr.todo, c)
		}
	}
	sum, all := state.Done(), int64(0)
	for _, c := range tr.todo {
		sum += c.Records
	}
	for _, c := range tr.planned {
		all += c.Records
	}
	if sum != all {
		return fmt.Errorf("%d records are done or remain, of %d", sum, all)
	}
	return nil
}

// step computes some of what remains: a chunk, a half, a beginning, or nothing.
func (tr *trial) step() error {
	i := tr.r.IntN(len(tr.todo))
	c := tr.todo[i]
	tr.todo = append(tr.todo[:i:i], tr.todo[i+1:]...)
	if tr.r.IntN(3) == 0 {
		first, second, err := input.SplitAt(c, chunk.Size(c.Records, 2, tr.batch))
		if err != nil {
			return err
		}
		if second.Records > 0 {
			tr.todo = append(tr.todo, second)
		}
		c = first
	}
	stop := int64(1 << 62)
	if tr.r.IntN(2) == 0 {
		stop = tr.r.Int64N(c.Records + 1)
	}
	segment, rest, err := tr.compute(c, stop)
	if err != nil {
		return err
	}
	if rest.Records > 0 {
		tr.todo = append(tr.todo, rest)
	}
	if err := tr.output.Commit(segment); err != nil {
		return err
	}
	if tr.r.IntN(4) == 0 {
		return tr.output.Checkpoint(true)
	}
	return nil
}

// compute runs the kernel over a chunk, up to the first batch border at or after stop
// records.
func (tr *trial) compute(c chunk.Chunk, stop int64) (chunk.Segment, chunk.Chunk, error) {
	reader, err := input.OpenReader(c, 1<<20)
	if err != nil {
		return chunk.Segment{}, c, err
	}
	defer reader.Close()
	part := NewPart(PartOptions{
		Path: tr.path(PartsDir, fmt.Sprintf("%012d-%08x", c.First, tr.r.Uint32())), Chunk: c,
		ErrorsApart: tr.apart, Step: "kernel", Device: "cpu",
	})
	rest := c
	var batch input.Batch
	for part.Counts().Records < stop {
		err := reader.Read(&batch, tr.batch, 1<<20)
		if errors.Is(err, io.EOF) {
			break
		}
		for i := 0; err == nil && i < len(batch.Records); i++ {
			err = kernel(part, batch.Records[i])
		}
		if err != nil {
			part.Discard()
			return chunk.Segment{}, c, err
		}
		rest = batch.Rest()
		batch.Release()
	}
	segment, err := part.Close(rest)
	return segment, rest, err
}

// kernel produces every outcome that a kernel can, depending on the record alone.
func kernel(part *Part, record input.Record) error {
	switch sum := crc32.ChecksumIEEE(record.Data); sum % 6 {
	case 0:
		return part.Write(Outcome{Dropped: true})
	case 1:
		return part.Write(Outcome{Record: record, Fault: fault.New(fault.Record, "bad %d", sum).WithDetail("trace")})
	case 2:
		return part.Write(Outcome{Record: record, Fault: fault.New(fault.Upstream, "")})
	case 3:
		return part.Write(Outcome{Lines: fmt.Appendf(nil, "%q\n%d\n", record.Data, sum)})
	}
	return part.Write(Outcome{Lines: fmt.Appendf(nil, "%q\n", record.Data)})
}

// undisturbed returns the expected output: all chunks in order, without a journal.
func (tr *trial) undisturbed(dir string) error {
	calm := *tr
	calm.dir, calm.journal, calm.output = dir, nil, nil
	if err := os.MkdirAll(calm.path(PartsDir), 0o700); err != nil {
		return err
	}
	o, err := Create(calm.options())
	if err != nil {
		return err
	}
	for _, c := range tr.planned {
		segment, _, err := calm.compute(c, 1<<62)
		if err != nil {
			return err
		}
		if err := o.Commit(segment); err != nil {
			return err
		}
	}
	return o.Finish()
}

// crash closes what a dead process would have open, and does nothing else.
func (tr *trial) crash() {
	tr.output.close()
	tr.journal.Close()
}
