package parquet

import (
	"encoding/binary"
	"strconv"

	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// maxScale limits the digits after the point of a decimal. Formats in use allow at most 76.
const maxScale = 1 << 12

// describe sets the type of a leaf, and how its values are written.
func (n *node) describe(e *parquet.SchemaElement) {
	m, physical := e.Meaning(), *e.Physical
	switch {
	case physical > parquet.PhysicalFixed || physical < 0:
		tree.Fail("column %q has the unknown type %d", e.Name, physical)
	case physical == parquet.PhysicalFixed && (e.Length <= 0 || e.Length > parquet.MaxFixed):
		tree.Fail("column %q has values of %d bytes", e.Name, e.Length)
	case m.Decimal != nil && (m.Decimal.Scale < 0 || m.Decimal.Scale > maxScale):
		tree.Fail("column %q is a decimal with %d digits after the point", e.Name, m.Decimal.Scale)
	}
	switch n.Type, n.Lost = e.Type(); {
	case m.Null != nil:
		n.Write = func(dst, _ []byte) []byte { return append(dst, "null"...) }
	case m.Decimal != nil && physical >= parquet.PhysicalBytes:
		n.Write = func(dst, v []byte) []byte { return parquet.AppendDecimal(dst, v, int(m.Decimal.Scale)) }
	case m.Decimal != nil && (physical == parquet.PhysicalInt32 || physical == parquet.PhysicalInt64):
		n.Write = func(dst, v []byte) []byte {
			return parquet.AppendLittleDecimal(dst, v, int(m.Decimal.Scale))
		}
	case physical == parquet.PhysicalInt96:
		n.Write = parquet.AppendInt96
	case n.Lost == "float16":
		n.Write = parquet.AppendFloat16
	case n.Lost == "interval":
		n.Write = appendInterval
	default:
		n.Write, n.Text = n.Type.Writer(), n.Type == parquet.String || n.Type == parquet.JSON
		n.Binary = !n.Text && physical >= parquet.PhysicalBytes && n.Type != parquet.UUID
	}
}

func appendInterval(dst, data []byte) []byte {
	for i, name := range []string{`{"months":`, `,"days":`, `,"milliseconds":`} {
		dst = append(dst, name...)
		dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data[4*i:])), 10)
	}
	return append(dst, '}')
}
