package parquet

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// Placed is a row group in its file.
type Placed struct {
	Offset int64
	Meta   []byte // from EncodeGroup
}

// createdBy does not name the version: a job may be resumed by another one.
const createdBy = "gpurun version 1.0.0"

// Tail returns the end of a file with the given row groups.
func (s Schema) Tail(groups []Placed) ([]byte, error) {
	decoded := make([]groupMeta, len(groups))
	rows := int64(0)
	for i, g := range groups {
		if err := json.Unmarshal(g.Meta, &decoded[i]); err != nil {
			return nil, fmt.Errorf("row group %d: %w", i, err)
		}
		if len(decoded[i].Columns) != len(s.Columns)+1 {
			return nil, fmt.Errorf("row group %d has %d columns, not %d", i, len(decoded[i].Columns), len(s.Columns)+1)
		}
		rows += decoded[i].Rows
	}
	t := new(thriftWriter)
	t.i32(1, 1) // version
	s.writeSchema(t)
	t.i64(3, rows)
	t.list(4, thriftStruct, len(groups))
	for i, g := range decoded {
		t.beginElement()
		s.writeGroup(t, i, groups[i].Offset, g)
		t.end()
	}
	t.text(6, createdBy)
	t.list(7, thriftStruct, len(s.Columns)+1) // how values compare: as their types do
	for range len(s.Columns) + 1 {
		t.beginElement()
		t.begin(1)
		t.end()
		t.end()
	}
	t.end()
	if len(t.data) > math.MaxInt32 {
		return nil, fmt.Errorf("the footer of %d row groups is too long", len(groups))
	}
	tail := binary.LittleEndian.AppendUint32(t.data, uint32(len(t.data)))
	return append(tail, magic...), nil
}

// writeSchema writes the tree of columns as a list, depth first.
func (s Schema) writeSchema(t *thriftWriter) {
	elements := 2 + len(s.Columns) // the root, and the column of errors
	for _, c := range s.Columns {
		elements += 2 * c.depth()
	}
	t.list(2, thriftStruct, elements)
	t.beginElement()
	t.text(4, "schema")
	t.i32(5, int64(len(s.Columns)+1))
	t.end()
	for _, c := range s.all() {
		writeLists(t, c.Name, c.depth(), c.Type.base(), optionalField)
	}
}

// writeLists writes the schema of a value inside nested lists.
func writeLists(t *thriftWriter, name string, lists int, base Type, repetition int64) {
	if lists == 0 {
		writeLeaf(t, name, base, repetition)
		return
	}
	t.beginElement()
	t.i32(3, repetition)
	t.text(4, name)
	t.i32(5, 1)
	t.i32(6, convertedList)
	writeLogical(t, logicalList)
	t.end()
	t.beginElement()
	t.i32(3, repeatedField)
	t.text(4, "list")
	t.i32(5, 1)
	t.end()
	writeLists(t, "element", lists-1, base, requiredField)
}

func writeLeaf(t *thriftWriter, name string, typ Type, repetition int64) {
	t.beginElement()
	t.i32(1, typ.physical())
	if typ.physical() == physicalFixed {
		t.i32(2, int64(typ.plainSize()))
	}
	t.i32(3, repetition)
	t.text(4, name)
	typ.writeMeaning(t)
	t.end()
}

// writeLogical writes a logical type without parameters.
func writeLogical(t *thriftWriter, id int64) {
	t.begin(10)
	t.begin(id)
	t.end()
	t.end()
}

func (s Schema) writeGroup(t *thriftWriter, ordinal int, offset int64, g groupMeta) {
	packed, unpacked := int64(0), int64(0)
	t.list(1, thriftStruct, len(g.Columns))
	for i, c := range s.all() {
		t.beginElement()
		t.i64(2, 0) // deprecated
		t.begin(3)
		writeChunk(t, c, offset+packed, g.Columns[i])
		t.end()
		t.end()
		packed += g.Columns[i].Packed
		unpacked += g.Columns[i].Unpacked
	}
	t.i64(2, unpacked)
	t.i64(3, g.Rows)
	t.i64(5, offset)
	t.i64(6, packed)
	if ordinal <= math.MaxInt16 {
		t.i16(7, int64(ordinal))
	}
}

func writeChunk(t *thriftWriter, c Column, offset int64, m chunkMeta) {
	t.i32(1, c.Type.physical())
	t.list(2, thriftI32, 2)
	t.data = append(t.data, 2*encodingPlain, 2*encodingRLE) // as variable-length integers
	path := []string{c.Name}
	for range c.depth() {
		path = append(path, "list", "element")
	}
	t.list(3, thriftBinary, len(path))
	for _, name := range path {
		t.element(name)
	}
	t.i32(4, compressionZstd)
	t.i64(5, m.Values)
	t.i64(6, m.Unpacked)
	t.i64(7, m.Packed)
	t.i64(9, offset)
	t.begin(12)
	t.i64(3, m.Nulls)
	if m.Min != nil && m.Max != nil {
		t.text(5, string(m.Max))
		t.text(6, string(m.Min))
	}
	t.end()
}
