package orchestrator

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// The columns of a job that are stored as raw values have a layout: names, types and widths.
// It is known with the first successful batch, and is then the same for the whole job: it is in
// job.json before anything that depends on it is committed. layoutLeader says which one is the
// first.

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

// maskPath returns the name of the mask of an array.
func (a OutputArray) maskPath() string {
	return strings.TrimSuffix(a.Path, arrayEnding) + maskEnding
}

// columnSpec returns which columns the job stores as raw values; nil for none.
func (c Config) columnSpec() *columns.Spec {
	if c.retriedSpec != nil {
		return c.retriedSpec
	}
	table := c.format().Table
	if len(c.Output.Arrays) == 0 && !table {
		return nil
	}
	spec := new(columns.Spec)
	if table {
		spec.Table = new(columns.TableSpec)
		spec.Table.Columns, _ = parseColumns(c.Output.Columns) // checked before
	}
	for _, a := range c.Output.Arrays {
		spec.Arrays = append(spec.Arrays, columns.ArraySpec{Name: a.Column, Half: strings.HasSuffix(a.Path, halfEnding)})
	}
	return spec
}

// arrays returns the files of the arrays: each with its mask, unless failed records are in a
// file of their own and have no rows.
func (o Output) arrays() (all []commit.Array) {
	for i, a := range o.Arrays {
		all = append(all, commit.Array{Path: a.Path, Column: i})
		if o.Errors == "" {
			all = append(all, commit.Array{Path: a.maskPath(), Column: i, Mask: true})
		}
	}
	return all
}

// cutsUnits reports whether the results are cut into units, which end where the plan says.
func (c Config) cutsUnits() bool {
	return c.format().Encodes() || c.columnSpec() != nil && !c.framed
}

// keepsFailed reports whether failed records are kept in the job folder, because the output
// does not hold them.
func (c Config) keepsFailed() bool {
	return (c.format().Table || c.Format == OpenAIBatch) && c.Output.Errors == "" && !c.framed && !c.streaming && !isStream(c.Output.Path)
}

// keepsFailed is the same for an earlier job.
func (o outputPrint) keepsFailed() bool { return o.Format == "parquet" || o.Lines == OpenAIBatch }

// checkArrays refuses arrays that cannot be written.
func (c Config) checkArrays() error {
	for i, a := range c.Output.Arrays {
		switch {
		case a.Column == "" || a.Path == "":
			return fault.New(fault.Usage, "an array needs the name of a column and a file").Set("column")
		case a.Column == "_error":
			return fault.New(fault.Usage, "_error marks failed records; it cannot be an array").Set("column")
		case !strings.HasSuffix(a.Path, arrayEnding):
			return fault.New(fault.Usage, "column %q: the name of the array %s must end in %s, or in %s for half precision", a.Column, a.Path, arrayEnding, halfEnding).Set("column")
		case strings.HasSuffix(a.Path, maskEnding):
			return fault.New(fault.Usage, "column %q: %s is the name of a mask; choose another", a.Column, a.Path).Set("column")
		case isStream(a.Path):
			return fault.New(fault.Usage, "column %q: the array %s is not a regular file", a.Column, a.Path).Set("column")
		case c.streaming || c.Output.Path != "" && isStream(c.Output.Path):
			return fault.New(fault.Usage, "column %q cannot be stored as an array: that needs an output file, because row i belongs to line i of it", a.Column).Set("column")
		case c.format().Table:
			return fault.New(fault.Usage, "column %q cannot be stored as an array beside a Parquet file, which has typed columns of its own", a.Column).Set("column")
		}
		for _, other := range c.Output.Arrays[:i] {
			if other.Column == a.Column {
				return fault.New(fault.Usage, "column %q is stored as an array twice", a.Column).Set("column")
			}
			if samePath(other.Path, a.Path) {
				return fault.New(fault.Usage, "the columns %q and %q are stored in the same file %s", other.Column, a.Column, a.Path).Set("column")
			}
		}
	}
	return nil
}

// checkArrayFiles refuses files that exist or belong to something else.
func checkArrayFiles(config Config) error {
	if config.framed {
		return nil // a retry writes none
	}
	for _, a := range config.Output.arrays() {
		for _, other := range []NamedFile{{"output", config.Output.Path}, {"errors file", config.Output.Errors}} {
			if other.Path != "" && samePath(other.Path, a.Path) {
				return fault.New(fault.Usage, "the array %s is the %s", a.Path, other.Name).Set("column")
			}
		}
		if keepsParts(config.Output.Path) && isInside(a.Path, config.Output.Path) {
			return fault.New(fault.Usage, "the array %s is in the output folder, which is replaced as a whole; choose another place", a.Path).Set("column")
		}
		if err := checkOutput(config, "array", a.Path); err != nil {
			return err
		}
	}
	return nil
}

// setLayout creates the layout, which is known if an earlier run of the job has fixed it.
func (p *prepared) setLayout() {
	p.spec = p.config.columnSpec()
	if p.spec == nil {
		return
	}
	known := p.config.knownLayout
	if known == nil && p.earlier != nil {
		known = p.earlier.manifest.Layout
	}
	p.layout = columns.NewShared(p.spec, known)
}

// fixLayout returns the layout of the job, which the first proposal fixes.
func (s *sources) fixLayout(proposed columns.Layout) (columns.Layout, *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fixed := s.layout.Get(); fixed != nil {
		return *fixed, nil
	}
	if err := proposed.Validate(); err != nil {
		return proposed, fault.New(fault.Worker, "a worker proposed an invalid layout: %w", err)
	}
	m := s.manifest(s.created)
	m.Layout = &proposed
	if err := s.folder.save(m); err != nil {
		return proposed, fault.As(fault.Wrap(fault.Storage, err))
	}
	s.layout.Fix(proposed)
	if text := jsonNote(s.spec.Table, proposed.Table); text != "" {
		s.emit(Notice{Text: text, Code: CodeSetting, Value: "columns"})
	}
	return proposed, nil
}

// jsonNote says which columns are JSON although neither the user nor the input asks for that.
func jsonNote(spec *columns.TableSpec, table *parquet.Schema) string {
	if spec == nil || table == nil {
		return ""
	}
	var names []string
	for _, c := range table.Columns {
		asked := func(o parquet.Column) bool { return o.Name == c.Name && o.Type == c.Type }
		if c.Type == parquet.JSON && !slices.ContainsFunc(spec.Columns, asked) && !slices.ContainsFunc(spec.Input, asked) {
			names = append(names, strconv.Quote(c.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "stored as JSON text, because their values are objects, have different types or are all null at first: " + some(names)
}

// answerLayout answers a worker's proposal. Its task begins with record first.
func (j *job) answerLayout(ctx context.Context, w *workerProcess, first int64, proposal wire.Layout) *fault.Error {
	if j.layout == nil {
		return fault.New(fault.Worker, "bug: a worker proposed a layout for a job without columns")
	}
	j.leader.await(ctx, first, j.layout.Known())
	fixed, err := j.sources.fixLayout(proposal.Layout)
	if err != nil {
		return err
	}
	_ = w.conn.Send(wire.Message{Layout: &wire.Layout{Layout: fixed}}) // if it fails, the worker has exited
	return nil
}

// earlierLayout returns the layout for reading the files of an earlier run; nil if it has no
// columns.
func (m *manifest) sharedLayout() *columns.Shared {
	spec := m.Fingerprint.Output.spec()
	if spec == nil {
		return nil
	}
	return columns.NewShared(spec, m.Layout)
}

// spec is that of the job with this fingerprint.
func (o outputPrint) spec() *columns.Spec {
	return Config{Output: Output{Arrays: o.Arrays, Format: o.Format, Columns: o.Columns}}.columnSpec()
}

// kept are the members that the output of the job with this fingerprint keeps.
func (o outputPrint) kept() []string { return Output{Keep: o.Keep, Columns: o.Columns}.kept() }

// arrays are those of the job with this fingerprint.
func (o outputPrint) arrays() []commit.Array {
	return Output{Arrays: o.Arrays, Errors: cmp.Or(o.Errors)}.arrays()
}

// arraysOf returns the arrays of the job whose output is at this path. If the job was moved,
// those that were beside its output, or below its folder, were moved with it; apart is one
// that was not.
func (m *manifest) arraysOf(output string) (all []commit.Array, apart string) {
	all = m.Fingerprint.Output.arrays()
	if m.writes(output) {
		return all, ""
	}
	for i := range all {
		path, with := m.movedWith(output, all[i].Path)
		if !with {
			return all, path
		}
		all[i].Path = path
	}
	return all, ""
}

// placeArrays sets where the arrays are.
func (r *Report) placeArrays(arrays []commit.Array) {
	for i := range r.Arrays {
		if i < len(arrays) {
			r.Arrays[i].Path = arrays[i].Path
		}
	}
}
