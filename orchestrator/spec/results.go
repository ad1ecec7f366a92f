package spec

import (
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Results is where the results of a job go and how they are stored.
type Results struct {
	Target Target
	Errors Target // for failed records; its name is empty if they stay in place
	Format encode.Format
	// Columns are those that are stored as raw values; nil for none. Layout is theirs if it is
	// known from the start, as in a retry.
	Columns *columns.Spec
	Layout  *columns.Layout
	// Arrays are the files of the columns that are stored beside the output: each with its
	// mask, unless failed records are in a file of their own and have no rows.
	Arrays []commit.Array
	// KeepFailed: failed records are kept in the job folder, because the output does not hold
	// them.
	KeepFailed bool
	// Store is how parts keep what became of records: in frames, for a retry and for Stream.
	Store chunk.Store
	// Batch: results have the form of lines in OpenAI's batch files.
	Batch bool
	// Kept are the only members of the records that the output has, besides the kernel's; nil
	// for all.
	Kept []string
	// Named are the columns of a table that the user has named, Asked the members to keep. A retry
	// keeps what its job does, and asks for none.
	Named, Asked []string
	// Unique are members that every record must have, each with another value.
	Unique []string
	// PartBytes is the minimum size of a part; 0 unless the target is a folder of parts.
	PartBytes int64
}

// CustomID is the member that names a request in a batch file.
const CustomID = "custom_id"

// endings of the names of arrays.
const (
	arrayEnding = ".npy"
	halfEnding  = ".f16.npy"
	maskEnding  = ".mask.npy"
)

// OutputArray is a column that is stored as a NumPy array beside the output.
type OutputArray struct {
	// Column is its name in the kernel's results.
	Column string `json:"column"`
	// Path is a file whose name ends in .npy; in .f16.npy for half precision.
	Path string `json:"path"`
}

// results decides where the results of a job go. The name of a pipe or device says nothing
// about the format.
func results(c Config) (r Results, err error) {
	r = Results{
		Target: At(c.Output.Path), Errors: At(c.Output.Errors), Batch: c.Format == OpenAIBatch,
		Kept: c.Output.Keep, Asked: c.Output.Keep, Arrays: c.Output.arrays(),
	}
	if r.Target.Kept() {
		r.Format, err = encode.Choose(c.Output.Path, c.Output.Format)
	} else {
		r.Format, err = encode.ByName(c.Output.Format)
	}
	if err != nil {
		return r, err
	}
	table, err := parseColumns(c.Output.Columns)
	if err != nil {
		return r, err
	}
	for _, column := range table {
		r.Named = append(r.Named, column.Name)
	}
	if len(r.Kept) == 0 {
		r.Kept = r.Named
	}
	if r.Store = commit.StoreOf(r.Format); r.Batch {
		r.Store, r.Unique = chunk.StoreBatch, []string{CustomID}
	}
	if r.Format.Table {
		r.Columns = &columns.Spec{Table: &columns.TableSpec{Columns: table}}
	} else if len(c.Output.Arrays) > 0 {
		r.Columns = new(columns.Spec)
	}
	for _, a := range c.Output.Arrays {
		r.Columns.Arrays = append(r.Columns.Arrays, columns.ArraySpec{Name: a.Column, Half: strings.HasSuffix(a.Path, halfEnding)})
	}
	r.KeepFailed = (r.Format.Table || r.Batch) && c.Output.Errors == "" && !r.Streamed()
	if r.Target.kind == parts {
		r.PartBytes = c.Output.PartBytes
	}
	return r, nil
}

// arrays returns the files of the arrays.
func (o Output) arrays() (all []commit.Array) {
	for i, a := range o.Arrays {
		all = append(all, commit.Array{Path: a.Path, Column: i})
		if o.Errors == "" {
			all = append(all, commit.Array{Path: strings.TrimSuffix(a.Path, arrayEnding) + maskEnding, Column: i, Mask: true})
		}
	}
	return all
}

// ArrayFiles returns the full paths of the files of the arrays, masks included.
func (o Output) ArrayFiles() (paths []string) {
	for _, a := range o.arrays() {
		paths = append(paths, files.Absolute(a.Path))
	}
	return paths
}

// Unresumable returns why a job cannot resume, "" if it can: a stream cannot be written
// twice.
func (r Results) Unresumable() string {
	if r.Streamed() {
		return "its output is a stream"
	}
	return ""
}

// Streamed reports whether results are written as they arrive, and cannot be read again.
func (r Results) Streamed() bool { return r.Target.kind == stream }

// Lasting returns the path of a file that only a job needs which can resume; "" in others.
func (r Results) Lasting(path string) string {
	if r.Streamed() {
		return ""
	}
	return path
}

// Stopped completes the fault that stops a job before it mixes two versions of something. One
// that cannot resume must start again.
func (r Results) Stopped(e *fault.Error) *fault.Error {
	if !r.Streamed() {
		return e
	}
	return fault.New(e.Kind, "%w; run the job again", e).Set(fault.Advised)
}

// EndsWithChunks reports whether parts of the output end where chunks do.
func (r Results) EndsWithChunks() bool { return r.PartBytes > 0 }

// CutsUnits reports whether the results are cut into units, which end where the plan says.
func (r Results) CutsUnits() bool {
	return r.Format.Encodes() || r.Columns != nil && r.Store != chunk.StoreFrames
}

// SamePlan reports whether a job that has computed nothing keeps the plan of an earlier run,
// because that determines where the parts of a folder and the units of an encoded output end.
func (r Results) SamePlan(was Results) bool {
	return r.PartBytes > 0 && r.PartBytes == was.PartBytes || r.Target.kind == file && r.CutsUnits()
}

// Flush returns after which time a record of a slow stream is computed before its chunk is full;
// 0 for never. Where the output's borders depend on chunks, they must depend on the content alone.
func (r Results) Flush(after time.Duration) time.Duration {
	if !r.Format.Table && (r.Streamed() || r.Target.kind == file && !r.CutsUnits()) {
		return after
	}
	return 0
}

// MayKeep reports whether the output may have a member of the records.
func (r Results) MayKeep(name string) bool { return len(r.Kept) == 0 || slices.Contains(r.Kept, name) }

// Stored returns the columns, for the input to complete, and their layout, which is known if an
// earlier run has fixed it; nil if there are none.
func (r Results) Stored(known *columns.Layout) (*columns.Spec, *columns.Shared) {
	if r.Columns == nil {
		return nil, nil
	}
	if r.Layout != nil {
		known = r.Layout
	}
	stored := r.Columns.Clone()
	return stored, columns.NewShared(stored, known)
}

// Commit returns how the results are written. dir is the job folder.
func (s *Spec) Commit(dir string, layout *columns.Shared) commit.Options {
	r := s.Results
	options := commit.Options{
		Path: r.Target.Name, Errors: r.Errors.Name, PartBytes: r.PartBytes, Format: r.Format, Arrays: r.Arrays, KeepFailed: r.KeepFailed,
		Replace: s.Output.Force, WorkDir: dir, First: s.Input.Offset, Stdout: s.Output.Stdout,
	}
	if r.Store != chunk.StoreFrames {
		options.Layout = layout
	}
	return options
}

// Part returns how a part of the results is written.
func (s *Spec) Part(path string) commit.PartOptions {
	r := s.Results
	return commit.PartOptions{
		Path: path, Store: r.Store, ErrorsApart: r.Errors.Name != "", Rows: r.Columns != nil, Step: s.Kernel.Name,
	}
}

// Journal creates the journal of a new job; nil if it cannot resume.
func (r Results) Journal(path string) (*commit.Journal, error) {
	if r.Streamed() {
		return nil, nil
	}
	return commit.CreateJournal(path)
}

// lastWrite is how long an aborted job waits for the reader of its output.
const lastWrite = time.Second

// Unread returns a channel that tells an aborted job that nobody reads what it writes. A
// write to a file completes.
func (r Results) Unread() <-chan time.Time {
	if !r.Streamed() && r.Errors.kind != stream {
		return nil
	}
	return time.After(lastWrite)
}

// checkArrays refuses arrays that cannot be written.
func checkArrays(o Output, r Results) error {
	if e := arrayFault(o, r); e != nil {
		return e.Set("column")
	}
	return nil
}

func arrayFault(o Output, r Results) *fault.Error {
	for i, a := range o.Arrays {
		switch {
		case a.Column == "" || a.Path == "":
			return fault.BadArray.New("an array needs the name of a column and a file")
		case a.Column == "_error":
			return fault.BadArray.New("_error marks failed records; it cannot be an array")
		case !strings.HasSuffix(a.Path, arrayEnding):
			return fault.BadArray.New("column %q: the name of the array %s must end in %s, or in %s for half precision", a.Column, a.Path, arrayEnding, halfEnding)
		case strings.HasSuffix(a.Path, maskEnding):
			return fault.BadArray.New("column %q: %s is the name of a mask; choose another", a.Column, a.Path)
		case At(a.Path).kind == stream:
			return fault.BadArray.New("column %q: the array %s is not a regular file", a.Column, a.Path)
		case r.Streamed():
			return fault.NeedsFile.New("column %q cannot be stored as an array: that needs an output file, because row i belongs to line i of it", a.Column)
		case r.Format.Table:
			return fault.BadArray.New("column %q cannot be stored as an array beside a table, which has typed columns of its own", a.Column)
		}
		for _, other := range o.Arrays[:i] {
			if other.Column == a.Column {
				return fault.BadArray.New("column %q is stored as an array twice", a.Column)
			}
			if files.Same(other.Path, a.Path) {
				return fault.SameFile.New("the columns %q and %q are stored in the same file %s", other.Column, a.Column, a.Path)
			}
		}
	}
	return nil
}

// checkTable refuses what only an output that is a table has.
func checkTable(c Config, r Results) error {
	if !r.Format.Table {
		if len(c.Output.Columns) > 0 {
			return fault.BadColumn.New("only an output that is a table has columns to choose; name it *.parquet or *.arrow").Set("columns")
		}
		return nil
	}
	if r.Batch {
		return refuseWith(c.Format, "an output of columns", "output")
	}
	return nil
}
