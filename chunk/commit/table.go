package commit

import (
	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// An output may be a table: its units are row groups, each file starts with a head, which is
// part of its first unit, and ends with a tail that describes the row groups. The tail is a
// unit without rows.

// beginGroup writes what precedes a row group, and adds it to sum.
func (o *Output) beginGroup(sum *chunk.FileSum) error {
	head := o.tableHead()
	t := &o.targets[chunk.Results]
	if _, err := t.Write(head); err != nil {
		return fault.New(fault.Storage, "write output %s: %w", t.path, err)
	}
	_, _ = sum.Write(head)
	return nil
}

// tableHead returns the head of a file that is empty so far.
func (o *Output) tableHead() []byte {
	t := &o.targets[chunk.Results]
	if t.size > t.begun {
		return nil
	}
	return o.options.Layout.Get().Table.Head()
}

// noteGroup notes a row group that is appended at the end of the current file.
func (o *Output) noteGroup(meta []byte) {
	t := &o.targets[chunk.Results]
	o.landed.groups = append(o.landed.groups, parquet.Placed{Offset: t.size - t.begun, Meta: meta})
}

// landTail ends the current file.
func (o *Output) landTail() error {
	head := o.tableHead()
	tail, err := o.options.Layout.Get().Table.Tail(o.landed.groups)
	if err != nil {
		return fault.New(fault.Unknown, "end output: %w", err)
	}
	tail = append(head, tail...)
	t := &o.targets[chunk.Results]
	if _, err := t.Write(tail); err != nil {
		return fault.New(fault.Storage, "write output %s: %w", t.path, err)
	}
	var sum chunk.FileSum
	_, _ = sum.Write(tail)
	o.sum = o.sum.Join(sum)
	unit := Unit{Bytes: sum.Bytes, CRC: sum.CRC}
	if o.cutter != nil {
		o.cutter.addUnit(o.landed.part, unit)
	}
	o.landed.units = append(o.landed.units, unit)
	o.landed.groups = nil
	crash.Point("tail-appended")
	return nil
}

// endFile puts the tail of the current file at the end of the queue.
func (u *units) endFile() {
	u.queue = append(u.queue, step{tail: true})
	u.fileEnded = true
}

// groups returns the row groups in the last file of the durable output.
func (s State) groups(options Options) []parquet.Placed {
	var groups []parquet.Placed
	var at int64
	part := 0
	s.eachUnit(options, func(in int, u Unit) {
		if in != part {
			part, at, groups = in, 0, nil
		}
		offset := at
		if at == 0 {
			offset = int64(len(parquet.Schema{}.Head()))
		}
		if u.Meta != nil {
			groups = append(groups, parquet.Placed{Offset: offset, Meta: u.Meta})
		}
		at += u.Bytes
	})
	return groups
}

// eachUnit calls each for the units of the durable output, with the number of the part that
// they are in.
func (s State) eachUnit(options Options, each func(part int, u Unit)) {
	var parts []ManifestPart
	if options.PartBytes > 0 {
		parts = s.plannedParts(options).parts
	}
	part := 0
	for _, e := range s.Encoded {
		for part+1 < len(parts) && parts[part+1].First <= e.First {
			part++
		}
		for _, u := range e.Units {
			each(part, u)
		}
	}
}
