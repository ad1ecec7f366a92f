package parquet

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// scalar appends a value that is not null as JSON. The value has the size that its type
// demands.
type scalar func(dst, v []byte) []byte

// maxScale limits the digits after the point of a decimal. Formats in use allow at most 76.
const maxScale = 1 << 12

// scalarOf returns how the values of a leaf are written, and whether they are text, or bytes
// without a meaning.
func scalarOf(e *parquet.SchemaElement) (write scalar, text, binary bool, err error) {
	m, physical := e.Meaning(), *e.Physical
	switch {
	case physical > parquet.PhysicalFixed || physical < 0:
		return nil, false, false, fmt.Errorf("column %q has the unknown type %d", e.Name, physical)
	case physical == parquet.PhysicalFixed && (e.Length <= 0 || e.Length > parquet.MaxFixed):
		return nil, false, false, fmt.Errorf("column %q has values of %d bytes", e.Name, e.Length)
	case m.Decimal != nil && (m.Decimal.Scale < 0 || m.Decimal.Scale > maxScale):
		return nil, false, false, fmt.Errorf("column %q is a decimal with %d digits after the point", e.Name, m.Decimal.Scale)
	}
	switch t, lost := e.Type(); {
	case m.Null != nil:
		write = func(dst, _ []byte) []byte { return append(dst, "null"...) }
	case m.Decimal != nil && physical >= parquet.PhysicalBytes:
		write = func(dst, v []byte) []byte { return parquet.AppendDecimal(dst, v, int(m.Decimal.Scale)) }
	case m.Decimal != nil && (physical == parquet.PhysicalInt32 || physical == parquet.PhysicalInt64):
		write = func(dst, v []byte) []byte {
			return parquet.AppendDecimal64(dst, parquet.Integer(v, false), int(m.Decimal.Scale))
		}
	case physical == parquet.PhysicalInt96:
		write = parquet.AppendInt96
	case lost == "float16":
		write = parquet.AppendFloat16
	case lost == "interval":
		write = appendInterval
	default:
		write, text = t.Writer(), t == parquet.String || t == parquet.JSON
		binary = !text && physical >= parquet.PhysicalBytes && t != parquet.UUID
	}
	return write, text, binary, nil
}

func appendInterval(dst, data []byte) []byte {
	for i, name := range []string{`{"months":`, `,"days":`, `,"milliseconds":`} {
		dst = append(dst, name...)
		dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data[4*i:])), 10)
	}
	return append(dst, '}')
}
