package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// inputNames returns what the user has named.
func inputNames(i Input) []string {
	if len(i.Paths) > 0 {
		return i.Paths
	}
	return []string{i.Path}
}

// limits are the records of the input that the job computes.
func (o *order) limits() input.Limits {
	return input.Limits{Offset: o.Input.Offset, Limit: o.Input.Limit}
}

// findInput finds the files and streams that the input's names stand for.
func (o *order) findInput() (err error) {
	names := inputNames(o.Input)
	o.inputs, err = source.Find(source.Options{
		Names: names, Stdin: o.Input.Stdin, Lines: o.stdin, Streams: o.streams, Beside: o.beside, Format: o.Input.Format, Columns: o.Input.Columns, SkipBad: o.Input.SkipBad,
		NoMembers: o.Results.Batch, // whose lines have the members that the API knows
		OriginOf:  folder.Origins(o.Output, o.Resume.WorkDir),
	})
	if err == nil {
		o.Spec, err = o.reading(o.Spec)
	}
	return err
}

// reading returns the Spec of a job that reads the input.
func (o *order) reading(s *spec.Spec) (*spec.Spec, error) {
	names := inputNames(s.Input)
	return s.Reading(o.inputs.Label(names), names, o.inputs.Paths(), len(o.inputs.Bytes()) > 0)
}

// streamPatience is how long a job waits for the first bytes of a stream before it begins without
// knowing whether that has columns of bytes.
const streamPatience = time.Second

// awaitStreams learns what streams are. The settings are those before the input was known.
func (o *order) awaitStreams(ctx context.Context, settings *spec.Spec) (err error) {
	if o.inputs.Streams() {
		o.inputs.Await(ctx, streamPatience)
		o.Spec, err = o.reading(settings)
	}
	return err
}

// checkUnique refuses a batch file in which a custom_id occurs more than once: results
// could not be told apart. A stream is gone when it is read.
func (o *order) checkUnique(ctx context.Context) error {
	if len(o.Results.Unique) == 0 || o.inputs.Streams() {
		return nil
	}
	list, err := record.Duplicates(func(yield func(record.Line) bool) error {
		return o.inputs.Each(ctx, o.limits(), o.Input.MaxRecordBytes, yield)
	})
	if err != nil || len(list) == 0 {
		return err
	}
	first, more := list[0], ""
	if others := len(list) - 1; others > 0 {
		more = fmt.Sprintf(", and %d more occur more than once", others)
	}
	place := func(l record.Line) string { return fmt.Sprintf("line %d of %s", l.Line, o.inputs.Files[l.File].Name) }
	return fault.DuplicateID.New("custom_id %q occurs in %s and again in %s%s; each must be unique, or results cannot be matched with requests",
		first.ID, place(first.First), place(first.Second), more)
}

// openSource starts to read the input.
func (p *prepared) openSource(ctx context.Context, f *folder.Folder) (err error) {
	if err := p.sampleInput(ctx); err != nil {
		return err
	}
	o, e := p.config, p.earlier
	if !p.cut.Counted() && p.cut.ChunkRecords == 0 { // it is not cut yet
		chunks, _ := p.chunks(-1)
		p.cut = o.inputs.NewCut(o.Input.ChunkRecords, p.lane.least, chunks, o.Input.Split)
	}
	r := source.Reading{
		Options: input.Options{
			Limits: o.limits(), Dir: f.Spool(), Ahead: 2*(len(p.plan.Slots)+len(p.staff.reserve)) + 2, Parallel: o.cores(),
			SkipBad: o.Input.SkipBad, Skipped: p.skipped, Keep: o.Resume.Spool, Flush: o.Results.Flush(o.Input.Flush), Earlier: e.State,
		},
		Cut: p.cut, Window: o.Input.Place, Counts: o.Input.Counts, Decoding: p.decoding(), Notice: o.notice,
		Log: o.Results.Lasting(f.Chunks()), Changed: o.Results.Stopped, Was: e.Manifest.Input.Files, Done: e.Reached(),
	}
	if o.repaired != nil {
		r.Forget = &o.repaired.First
	}
	p.source, err = o.inputs.Open(r)
	return err
}

// sampleInput looks at the first input records, unless that was done or the layout of the table is
// known.
func (p *prepared) sampleInput(ctx context.Context) error {
	if !p.columns.IsTable() {
		return nil
	}
	if sampled := p.config.Input.Table; sampled != nil {
		p.columns.Table.Sample, p.columns.Table.Input = sampled.Sample, sampled.Input
		return nil
	}
	if p.layout.Get() != nil {
		return nil
	}
	notes, err := p.config.sampleTable(ctx, p.decoding(), p.columns.Table)
	p.plan.note(notes...)
	return err
}

// sampleTable adds what the input shows to what is known of a table. It returns lines for the user.
func (o *order) sampleTable(ctx context.Context, decoding format.Options, table *columns.TableSpec) (notes []string, err error) {
	if err := sampleTable(ctx, o.inputs, decoding, table, o.Output.Keep); err != nil {
		return nil, err
	}
	notes = addDeclared(table, declaredColumns(o.inputs.Files, decoding), o.Results.MayKeep)
	addBytes(table, decoding.Bytes, o.Results.MayKeep)
	return notes, nil
}

// openOutput creates the output, or reopens it on resume.
func (p *prepared) openOutput(ctx context.Context, f *folder.Folder) (*commit.Output, error) {
	e, options := p.earlier, p.config.Commit(f.Path, p.layout)
	options.Input, options.Stop, options.Journal = p.source.Source, ctx.Done(), e.Journal
	options.UnitBytes, options.NoDurable, options.DurableEvery = p.config.Options.unitBytes, p.config.Options.noDurable, p.config.Options.durableEvery
	if e.Stale { // before job.json names the new kernel
		if err := early.Forget(f.Parts(), 0); err != nil {
			return nil, fault.JobFiles.Wrap(err)
		}
	}
	p.job.Created, p.job.Cut, p.job.Layout = e.Manifest.Created, p.cut, p.layout.Get()
	p.job.Bytes = p.beside()
	if p.columns.IsTable() {
		p.job.Declared = p.columns.Table.Input
	}
	if err := f.Save(p.job); err != nil {
		return nil, err
	}
	return commit.Resume(options, e.State)
}

// decoding is how the inputs are decoded: only the members that the job needs, if that is known.
func (p *prepared) decoding() format.Options {
	o, info := p.config, p.plan.Info
	options := format.Options{Columns: o.Input.Columns, Types: o.Output.Columns, Bytes: p.bytes(), Threads: 1}
	if len(o.Results.Kept) > 0 && info.OnlyInputs {
		options.Members = slices.Concat(o.Results.Kept, info.Inputs, o.fetchFields(), p.lane.grouped, []string{errorMember})
	}
	if len(o.inputs.Files) == 1 {
		options.Threads = o.cores()
	}
	return options
}

// errorMember marks a record that failed before.
const errorMember = "_error"

// SkippedInput is a file of which the rest was skipped because it is damaged.
type SkippedInput struct {
	File string `json:"file"`
	// Line is the first line that could not be read.
	Line int64 `json:"line"`
	// Rows: Line is the number of a row.
	Rows    bool   `json:"rows,omitempty"`
	Message string `json:"message"`
}

// skips collects them: several files are read at a time.
type skips struct {
	mu   sync.Mutex
	list []SkippedInput
}

// skipped reports a file that could not be read to its end.
func (p *prepared) skipped(d input.Damage) {
	p.skips.mu.Lock()
	p.skips.list = append(p.skips.list, SkippedInput{File: d.Name, Line: d.Line, Rows: d.Rows, Message: d.Err.Error()})
	p.skips.mu.Unlock()
	p.config.notice(fmt.Sprintf("skipped the rest of input %s, from %s %d on: %v", d.Name, chunk.Unit(d.Rows), d.Line, d.Err))
}

// all returns them in the order of their names.
func (s *skips) all() []SkippedInput {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.list), func(a, b SkippedInput) int { return cmp.Compare(a.File, b.File) })
}

// Values of columns of bytes, such as images, travel beside the lines of their records, to a kernel
// that reads fetched files and to an output that is a table. Outputs of lines leave them out, except
// for those that the user asks to keep.

// bytes returns where the values of the input's columns of bytes go; nil if there are none.
func (p *prepared) bytes() *format.Bytes { return p.config.bytes(p.readsBytes) }

// bytes is the same for a kernel that reads some of them.
func (o *order) bytes(reads func(name string) bool) *format.Bytes {
	names := o.inputs.Bytes()
	if len(names) == 0 {
		return nil
	}
	to := &format.Bytes{Names: names}
	for _, name := range names {
		table := o.Results.Columns.IsTable()
		if reads(name) || table && o.Results.MayKeep(name) {
			to.Beside = append(to.Beside, name)
		}
		if !table && slices.Contains(o.Output.Keep, name) {
			to.Inline = append(to.Inline, name)
		}
	}
	return to
}

// beside returns the names of the values that records have beside their lines.
func (p *prepared) beside() []string {
	if b := p.bytes(); b != nil {
		return b.Beside
	}
	return nil
}

// bytesRead returns those of them that the kernel gets.
func (p *prepared) bytesRead() []string {
	return slices.DeleteFunc(slices.Clone(p.beside()), func(name string) bool { return !p.readsBytes(name) })
}

// readsBytes reports whether the kernel may read the values of a column of bytes.
func (p *prepared) readsBytes(name string) bool {
	info := p.plan.Info
	fetched := slices.ContainsFunc(p.config.Fetch.Members, func(m FetchMember) bool { return m.Name == name })
	return info.ReadsFetched && !fetched && (!info.OnlyInputs || slices.Contains(info.Inputs, name))
}

// noteBytes says which columns of bytes the output leaves out.
func (p *prepared) noteBytes() {
	b := p.bytes()
	if b == nil || p.config.Results.Columns.IsTable() {
		return
	}
	var left []string
	for _, name := range b.Names {
		if !slices.Contains(b.Inline, name) && (len(p.config.Output.Keep) == 0 || slices.Contains(p.config.Output.Keep, name)) {
			left = append(left, strconv.Quote(name))
		}
	}
	if len(left) > 0 {
		p.plan.note("the output leaves out columns of bytes: " + strings.Join(left, ", ") + "; Parquet holds them, and lines hold those that are named as members to keep, as base64")
	}
}

// addBytes adds the columns of bytes that the input does not declare to what is known of a table.
func addBytes(t *columns.TableSpec, b *format.Bytes, isKept func(string) bool) {
	if b == nil {
		return
	}
	for _, name := range b.Beside {
		if _, known := t.Sample.Type(name); known || !isKept(name) {
			continue
		}
		t.Sample.Columns = append(t.Sample.Columns, parquet.Column{Name: name})
		t.Input = append(t.Input, parquet.Column{Name: name, Type: parquet.Bytes})
	}
}
