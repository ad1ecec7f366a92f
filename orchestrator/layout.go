package orchestrator

import (
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// The columns of a job that are stored as raw values have a layout: names, types and widths.
// It is known with the first successful batch, and is then the same for the whole job: it is in
// job.json before anything that depends on it is committed. layoutLeader says which one is the
// first.

// fixLayout returns the layout of the job, which the first proposal fixes.
func (s *sources) fixLayout(proposed columns.Layout) (columns.Layout, *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fixed := s.layout.Get(); fixed != nil {
		return *fixed, nil
	}
	if err := proposed.Validate(); err != nil {
		return proposed, fault.WorkerLost.New("a worker proposed an invalid layout: %w", err)
	}
	m := s.job
	m.Layout = &proposed
	if err := s.folder.save(m); err != nil {
		return proposed, fault.As(fault.JobFiles.Wrap(err))
	}
	s.job = m
	s.layout.Fix(proposed)
	if text := jsonNote(s.columns.Table, proposed.Table); text != "" {
		s.emit(Notice{Text: text, Value: "columns"})
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

// arraysOf returns the arrays of the job whose output is at this path. If the job was moved,
// those that were beside its output, or below its folder, were moved with it; apart is one
// that was not.
func (m *manifest) arraysOf(output string) (all []commit.Array, apart string) {
	all = slices.Clone(m.Spec.Results.Arrays)
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
