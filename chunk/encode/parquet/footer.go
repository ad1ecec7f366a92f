package parquet

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
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
	t.i32(spec.FileVersion, 1)
	s.writeSchema(t)
	t.i64(spec.FileRows, rows)
	t.list(spec.FileGroups, spec.ThriftStruct, len(groups))
	for i, g := range decoded {
		t.beginElement()
		s.writeGroup(t, i, groups[i].Offset, g)
		t.end()
	}
	if err := s.writeKeyValues(t); err != nil {
		return nil, err
	}
	t.text(spec.FileCreatedBy, createdBy)
	t.list(spec.FileColumnOrders, spec.ThriftStruct, len(s.Columns)+1)
	for range len(s.Columns) + 1 {
		t.beginElement()
		t.begin(spec.ColumnOrderTypeDefined)
		t.end()
		t.end()
	}
	t.end()
	if len(t.data) > math.MaxInt32 {
		return nil, fmt.Errorf("the footer of %d row groups is too long", len(groups))
	}
	tail := binary.LittleEndian.AppendUint32(t.data, uint32(len(t.data)))
	return append(tail, spec.Magic...), nil
}

// writeKeyValues lists the columns of JSON.
func (s Schema) writeKeyValues(t *thriftWriter) error {
	var names []string
	for _, c := range s.all() {
		if c.Type.base() == JSON {
			names = append(names, c.Name)
		}
	}
	list, err := json.Marshal(names)
	t.list(spec.FileKeyValues, spec.ThriftStruct, 1)
	t.beginElement()
	t.text(spec.KeyValueKey, spec.JSONColumns)
	t.text(spec.KeyValueValue, string(list))
	t.end()
	return err
}

// writeSchema writes the tree of columns as a list, depth first.
func (s Schema) writeSchema(t *thriftWriter) {
	elements := 2 + len(s.Columns) // the root, and the column of errors
	for _, c := range s.Columns {
		elements += 2 * c.depth()
	}
	t.list(spec.FileSchema, spec.ThriftStruct, elements)
	t.beginElement()
	t.text(spec.ElementName, "schema")
	t.i32(spec.ElementChildren, int64(len(s.Columns)+1))
	t.end()
	for _, c := range s.all() {
		writeLists(t, c.Name, c.depth(), c.Type.base(), spec.Optional)
	}
}

// writeLists writes the schema of a value inside nested lists.
func writeLists(t *thriftWriter, name string, lists int, base Type, repetition int64) {
	if lists == 0 {
		writeLeaf(t, name, base, repetition)
		return
	}
	t.beginElement()
	t.i32(spec.ElementRepetition, repetition)
	t.text(spec.ElementName, name)
	t.i32(spec.ElementChildren, 1)
	t.i32(spec.ElementConverted, spec.ConvertedList)
	writeLogical(t, spec.LogicalList)
	t.end()
	t.beginElement()
	t.i32(spec.ElementRepetition, spec.Repeated)
	t.text(spec.ElementName, "list")
	t.i32(spec.ElementChildren, 1)
	t.end()
	writeLists(t, "element", lists-1, base, spec.Required)
}

func writeLeaf(t *thriftWriter, name string, typ Type, repetition int64) {
	t.beginElement()
	t.i32(spec.ElementPhysical, typ.physical())
	if typ.physical() == spec.PhysicalFixed {
		t.i32(spec.ElementLength, int64(typ.plainSize()))
	}
	t.i32(spec.ElementRepetition, repetition)
	t.text(spec.ElementName, name)
	typ.writeMeaning(t)
	t.end()
}

// writeLogical writes a logical type without parameters.
func writeLogical(t *thriftWriter, id int64) {
	t.begin(spec.ElementLogical)
	t.begin(id)
	t.end()
	t.end()
}

func (s Schema) writeGroup(t *thriftWriter, ordinal int, offset int64, g groupMeta) {
	packed, unpacked := int64(0), int64(0)
	t.list(spec.GroupColumns, spec.ThriftStruct, len(g.Columns))
	for i, c := range s.all() {
		t.beginElement()
		t.i64(spec.ChunkOffset, 0)
		t.begin(spec.ChunkMeta)
		writeChunk(t, c, offset+packed, g.Columns[i])
		t.end()
		t.end()
		packed += g.Columns[i].Packed
		unpacked += g.Columns[i].Unpacked
	}
	t.i64(spec.GroupUnpacked, unpacked)
	t.i64(spec.GroupRows, g.Rows)
	t.i64(spec.GroupOffset, offset)
	t.i64(spec.GroupPacked, packed)
	if ordinal <= math.MaxInt16 {
		t.i16(spec.GroupOrdinal, int64(ordinal))
	}
}

func writeChunk(t *thriftWriter, c Column, offset int64, m chunkMeta) {
	t.i32(spec.ColumnPhysical, c.Type.physical())
	t.list(spec.ColumnEncodings, spec.ThriftI32, 2)
	t.data = append(t.data, 2*spec.EncodingPlain, 2*spec.EncodingRLE) // as variable-length integers
	path := []string{c.Name}
	for range c.depth() {
		path = append(path, "list", "element")
	}
	t.list(spec.ColumnPath, spec.ThriftBinary, len(path))
	for _, name := range path {
		t.element(name)
	}
	t.i32(spec.ColumnCodec, spec.CodecZstd)
	t.i64(spec.ColumnValues, m.Values)
	t.i64(spec.ColumnUnpacked, m.Unpacked)
	t.i64(spec.ColumnPacked, m.Packed)
	t.i64(spec.ColumnDataOffset, offset)
	t.begin(spec.ColumnStatistics)
	t.i64(spec.StatisticsNulls, m.Nulls)
	if m.Min != nil && m.Max != nil {
		t.text(spec.StatisticsMax, string(m.Max))
		t.text(spec.StatisticsMin, string(m.Min))
	}
	t.end()
}
