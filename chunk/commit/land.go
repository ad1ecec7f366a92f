package commit

import (
	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// landed is the state of an encoded output up to which it may become durable, and what was
// appended after it.
type landed struct {
	durable Durable
	part    int               // number of the part that is being written
	raw     int64             // bytes of the results before they were encoded
	read    chunk.FileSum     // of the results since the last mark, as they were encoded
	units   []Unit            // since the last mark
	columns chunk.PartColumns // like read
	groups  []parquet.Placed  // the row groups of the current file of a table
}

// Encoded is signaled when a unit is encoded, for Land to append it; nil if the output is
// not encoded.
func (o *Output) Encoded() <-chan struct{} {
	if o.units == nil {
		return nil
	}
	return o.units.finished
}

// Land appends the encoded units whose turn it is.
func (o *Output) Land() error {
	if err := o.land(false); err != nil {
		return err
	}
	return o.Checkpoint(false)
}

// land performs the steps that are ready, or all with wait.
func (o *Output) land(wait bool) error {
	for o.units != nil && o.failed == nil {
		s, ok := o.units.next(wait)
		if !ok {
			break
		}
		o.failed = o.perform(s)
	}
	return o.failed
}

func (o *Output) perform(s step) error {
	switch {
	case s.unit != nil:
		return o.landUnit(s.unit)
	case s.mark != nil:
		return o.landMark(*s.mark)
	case s.tail:
		return o.landTail()
	}
	if err := o.settle(); err != nil { // it covers the part that ends
		return err
	}
	if err := o.targets[chunk.Results].nextPart(s.part); err != nil {
		return err
	}
	o.landed.part++
	if o.units.table() {
		o.fileUnits, o.landed.groups = append(o.fileUnits, nil), nil
	}
	crash.Point("part-begun")
	return nil
}

// landUnit appends a unit.
func (o *Output) landUnit(u *pendingUnit) error {
	t := &o.targets[chunk.Results]
	err := u.err
	var head chunk.FileSum
	if err == nil && o.units.table() {
		if err = o.beginGroup(&head); err == nil {
			o.noteGroup(u.meta)
		}
	}
	if err == nil {
		if u.data == nil {
			err = u.encodeAll(t)
		} else if _, failed := t.Write(u.data.Bytes()); failed != nil {
			err = fault.New(fault.Storage, "write output %s: %w", t.path, failed)
		}
	}
	if u.data != nil {
		unitBuffers.Put(u.data)
		u.data = nil
	}
	if err != nil {
		return err
	}
	sides, err := o.landArrays(u)
	if err != nil {
		return err
	}
	o.writeback.begin(t, u.sum.Bytes)
	sum := head.Join(u.sum)
	o.sum = o.sum.Join(sum)
	unit := Unit{Raw: u.lines, Bytes: sum.Bytes, CRC: sum.CRC, Sides: sides, Meta: u.meta}
	if o.cutter != nil {
		o.cutter.addUnit(o.landed.part, unit)
	}
	l := &o.landed
	if o.units.table() {
		o.noteFileUnit(l.part, unit)
	}
	l.raw += u.lines
	l.read = l.read.Join(u.read)
	l.columns.Index, l.columns.Values = l.columns.Index.Join(u.readColumns.Index), l.columns.Values.Join(u.readColumns.Values)
	l.units = append(l.units, unit)
	crash.Point("unit-appended")
	return nil
}

// landMark records that everything up to a mark is appended.
func (o *Output) landMark(m mark) error {
	l := &o.landed
	if l.read != m.results {
		return errPartChanged(m.results, l.read)
	}
	if l.columns != m.columns {
		return errPartChanged(m.columns.Values, l.columns.Values)
	}
	m.Sizes[chunk.Results], m.Sides = o.targets[chunk.Results].size, o.arraySizes()
	encoded := Encoded{First: m.first, Next: m.Next, Units: l.units}
	if o.options.Journal != nil { // no durable point may cover units that the journal lacks
		if err := o.options.Journal.Append(Entry{Encoded: &encoded}); err != nil {
			return err
		}
	}
	l.durable, l.read, l.columns, l.units = m.Durable, chunk.FileSum{}, chunk.PartColumns{}, nil
	if o.options.Journal == nil {
		for _, s := range m.segments {
			removeCommitted(o.partPath(s))
		}
		return nil
	}
	o.parts = append(o.parts, m.segments...)
	for _, s := range m.segments {
		for _, f := range s.Files {
			o.bytes += f.Bytes
		}
	}
	crash.Point("encoded")
	return nil
}

// endUnits ends the last unit. A file of no lines gets an empty unit: without one, readers
// would take it for a truncated file.
func (o *Output) endUnits() error {
	if o.units == nil {
		return nil
	}
	if o.options.Layout != nil {
		o.options.Layout.Settle() // there was no result
	}
	ends := o.units.open.raw > 0 || !o.units.begun && o.options.Format.Codec != nil
	if ends {
		o.units.end()
	}
	if o.units.table() && !o.units.fileEnded {
		o.units.endFile()
		ends = true
	}
	if ends {
		o.units.reach(*o.head())
	}
	return o.land(true)
}
