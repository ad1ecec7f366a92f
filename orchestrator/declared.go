package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// Files of some formats declare the types of their columns. A table takes them for the members
// that pass through a job, instead of guessing from the first records.

// declared are the columns of a job's input files, with the types in which all files agree.
type declared struct {
	list []format.Column
	// froms are the files that declare the columns; conflicts what other files declare.
	froms     []string
	conflicts []string
}

// declaredColumns returns what the input files declare; nil if some of them declare nothing.
func (p *prepared) declaredColumns(options format.Options) *declared {
	d := new(declared)
	for _, file := range p.config.inputs.Files {
		if file.Stream() {
			return nil
		}
		list, ok, err := file.Columns(options)
		if err != nil {
			continue // a damaged file is reported when it is read
		}
		if !ok {
			return nil
		}
		for _, c := range list {
			d.add(c, file.Name)
		}
	}
	return d
}

// add adds a column of a file.
func (d *declared) add(c format.Column, file string) {
	at := slices.IndexFunc(d.list, func(o format.Column) bool { return o.Name == c.Name })
	if at < 0 {
		d.list, d.froms, d.conflicts = append(d.list, c), append(d.froms, file), append(d.conflicts, "")
		return
	}
	if known := d.list[at]; known != c && d.conflicts[at] == "" {
		d.conflicts[at] = fmt.Sprintf("%s in %s, %s in %s", typeName(known), d.froms[at], typeName(c), file)
	}
}

// typeName is what messages call the type of an input column.
func typeName(c format.Column) string {
	switch {
	case c.Lost != "":
		return c.Lost
	case c.Type == "":
		return "a list"
	}
	return c.Type
}

// addTo adds the columns to what is known of a table, after the sample has been taken. It
// returns a line for the user if some of the types are not kept. isKept reports whether a column
// passes through the job, as far as is known.
func (d *declared) addTo(t *columns.TableSpec, isKept func(string) bool) string {
	if d == nil {
		return ""
	}
	var lost, differ []string
	for i, c := range d.list {
		if c.Name == parquet.ErrorColumn || c.Name == "" || !isKept(c.Name) {
			continue
		}
		if _, sampled := t.Sample.Type(c.Name); !sampled {
			t.Sample.Columns = append(t.Sample.Columns, parquet.Column{Name: c.Name})
		}
		given := slices.ContainsFunc(t.Columns, func(o parquet.Column) bool { return o.Name == c.Name && o.Type != "" })
		typ, err := parquet.ParseType(c.Type)
		switch {
		case d.conflicts[i] != "":
			if !given {
				differ = append(differ, fmt.Sprintf("%q is %s", c.Name, d.conflicts[i]))
			}
			continue
		case err == nil:
			t.Input = append(t.Input, parquet.Column{Name: c.Name, Type: typ})
		default:
			sampled, _ := t.Sample.Type(c.Name)
			if typ = sampled.Settled(); typ == parquet.JSON && c.Lost == "" {
				c.Lost = "list"
			}
		}
		if c.Lost != "" && !given {
			lost = append(lost, fmt.Sprintf("%q (%s) becomes %s", c.Name, c.Lost, typ))
		}
	}
	var notes []string
	if len(lost) > 0 {
		notes = append(notes, "the output does not keep the types of some input columns: "+some(lost))
	}
	if len(differ) > 0 {
		notes = append(notes, "the input files disagree about types, which come from the first records instead: "+some(differ))
	}
	return strings.Join(notes, "; ")
}

// some joins the first texts of a list that may be long.
func some(list []string) string {
	const most = 5
	if more := len(list) - most; more > 0 {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}
