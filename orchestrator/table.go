package orchestrator

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// sampleRecords is how many input records are looked at: they tell which members the rows of a
// table have, and their types.
const sampleRecords = 1000

// sampleTable adds the members of the first records to what is known of a table; only some of
// them, if keep names any.
func sampleTable(ctx context.Context, inputs *source.Inputs, options format.Options, table *columns.TableSpec, keep []string) error {
	left, to := sampleRecords, &table.Sample
	err := inputs.Sample(ctx, options, func(line record.Line) bool {
		to.Add(bytes.TrimSpace(line.Data))
		left--
		return left > 0
	})
	to.Columns = slices.DeleteFunc(to.Columns, func(c parquet.Column) bool { return len(keep) > 0 && !slices.Contains(keep, c.Name) })
	return err
}

// Files of some formats declare the types of their columns. A table takes them for the members
// that pass through a job, instead of guessing from the first records.

// declared is a column that input files declare.
type declared struct {
	format.Column
	file     string // that declares it
	conflict string // what another file declares
}

// declaredColumns returns what the input files declare; nothing if some of them declare nothing.
func declaredColumns(files []source.File, options format.Options) (all []*declared) {
	for _, file := range files {
		list, ok, err := file.Columns(options)
		if err != nil {
			continue // a damaged file is reported when it is read
		}
		if !ok {
			return nil
		}
		for _, c := range list {
			at := slices.IndexFunc(all, func(o *declared) bool { return o.Name == c.Name })
			if at < 0 {
				all = append(all, &declared{Column: c, file: file.Name})
				continue
			}
			known := all[at]
			if known.Feature != c.Feature {
				known.Feature, c.Feature = "", ""
			}
			if known.Bytes && c.Bytes {
				known.Type = string(parquet.JoinBytes(parquet.Type(known.Type), parquet.Type(c.Type)))
			} else if known.Column != c && known.conflict == "" {
				known.conflict = fmt.Sprintf("%s in %s, %s in %s", typeName(known.Column), known.file, typeName(c), file.Name)
			}
		}
	}
	return all
}

// typeName is what messages call the type of an input column.
func typeName(c format.Column) string { return cmp.Or(c.Lost, c.Type, "a list") }

// addDeclared adds the columns to what is known of a table, after the sample has been taken. It
// returns lines for the user if some of the types are not kept. isKept reports whether a column
// passes through the job, as far as is known.
func addDeclared(t *columns.TableSpec, list []*declared, isKept func(string) bool) (notes []string) {
	var lost, differ []string
	for i, c := range list {
		if c.Name == parquet.ErrorColumn || c.Name == "" || !isKept(c.Name) {
			continue
		}
		sampled, is := t.Sample.Type(c.Name)
		if !is { // no record has it, or it is beside the lines
			at := min(i, len(t.Sample.Columns))
			t.Sample.Columns = slices.Insert(t.Sample.Columns, at, parquet.Column{Name: c.Name})
		}
		given := slices.ContainsFunc(t.Columns, func(o parquet.Column) bool { return o.Name == c.Name && o.Type != "" })
		typ, err := parquet.ParseType(c.Type)
		switch {
		case c.conflict != "":
			if !given {
				differ = append(differ, fmt.Sprintf("%q is %s", c.Name, c.conflict))
			}
			continue
		case err == nil:
			t.Input = append(t.Input, parquet.Column{Name: c.Name, Type: typ, Feature: c.Feature})
		default:
			if typ = sampled.Settled(); typ == parquet.JSON && c.Lost == "" {
				c.Lost = "list"
			}
		}
		if c.Lost != "" && !given {
			lost = append(lost, fmt.Sprintf("%q (%s) becomes %s", c.Name, c.Lost, typ))
		}
	}
	if len(lost) > 0 {
		notes = append(notes, "the output does not keep the types of some input columns: "+some(lost))
	}
	if len(differ) > 0 {
		notes = append(notes, "the input files disagree about types, which come from the first records instead: "+some(differ))
	}
	return notes
}

// some joins the first texts of a list that may be long.
func some(list []string) string {
	const most = 5
	if more := len(list) - most; more > 0 {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}

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
	if agreement := s.config.Agreement; agreement != nil {
		var err error
		if proposed, err = agreement.FixLayout(proposed); err != nil {
			return proposed, fault.As(fault.JobFiles.Wrap(err))
		}
	}
	m := s.job
	m.Layout = &proposed
	if err := s.folder.Save(m); err != nil {
		return proposed, fault.As(fault.JobFiles.Wrap(err))
	}
	s.job = m
	s.layout.Fix(proposed)
	if text := jsonNote(s.columns.Table, proposed.Table); text != "" {
		s.config.emit(Notice{Text: text, Value: "columns"})
	}
	return proposed, nil
}

// adoptLayout gives a job without any result the layout that other machines have agreed on
// meanwhile.
func (s *sources) adoptLayout() error {
	if s.layout == nil || s.layout.Get() != nil {
		return nil
	}
	agreed, err := s.config.agreedLayout()
	if err != nil || agreed == nil {
		return err
	}
	if _, e := s.fixLayout(*agreed); e != nil {
		return e
	}
	return nil
}

// agreedLayout returns the layout that machines which share the job have agreed on, nil if there is
// none.
func (o *order) agreedLayout() (*columns.Layout, error) {
	if o.Agreement == nil {
		return nil, nil
	}
	return o.Agreement.Layout()
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
