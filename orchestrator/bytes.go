package orchestrator

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
)

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
