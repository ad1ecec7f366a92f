package parquet

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/jsonline"
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
	switch _, lost := e.Type(); {
	case m.Null != nil:
		write = func(dst, _ []byte) []byte { return append(dst, "null"...) }
	case physical < parquet.PhysicalBytes:
		write = numberScalar(m, physical)
	case m.Decimal != nil:
		write = func(dst, v []byte) []byte { return parquet.AppendDecimal(dst, v, int(m.Decimal.Scale)) }
	case m.String != nil || m.Enum != nil:
		write, text = jsonline.AppendString[[]byte], true
	case m.JSON != nil:
		write, text = parquet.AppendJSON, true
	case m.UUID != nil && e.Length == 16:
		write = parquet.AppendUUID
	case lost == "float16":
		write = parquet.AppendFloat16
	case lost == "interval":
		write = appendInterval
	default:
		write, binary = parquet.AppendBase64, true
	}
	return write, text, binary, nil
}

// numberScalar returns how the values of a column of numbers are written: many types are
// stored as integers.
func numberScalar(m parquet.LogicalType, physical int32) scalar {
	switch physical {
	case parquet.PhysicalBool:
		return func(dst, v []byte) []byte { return strconv.AppendBool(dst, v[0] != 0) }
	case parquet.PhysicalInt96:
		return parquet.AppendInt96
	case parquet.PhysicalFloat:
		return parquet.AppendFloat32
	case parquet.PhysicalDouble:
		return parquet.AppendFloat64
	}
	append64 := jsonline.AppendInt
	switch {
	case m.Decimal != nil:
		append64 = func(dst []byte, n int64) []byte { return parquet.AppendDecimal64(dst, n, int(m.Decimal.Scale)) }
	case m.Date != nil:
		append64 = parquet.AppendDate
	case m.Time != nil:
		append64 = m.Time.AppendTime
	case m.Timestamp != nil:
		append64 = m.Timestamp.AppendTimestamp
	case m.Integer != nil && !m.Integer.Signed && physical == parquet.PhysicalInt32:
		append64 = func(dst []byte, n int64) []byte { return strconv.AppendUint(dst, uint64(uint32(n)), 10) }
	case m.Integer != nil && !m.Integer.Signed:
		append64 = func(dst []byte, n int64) []byte { return strconv.AppendUint(dst, uint64(n), 10) }
	}
	if physical == parquet.PhysicalInt32 {
		return func(dst, v []byte) []byte { return append64(dst, int64(int32(binary.LittleEndian.Uint32(v)))) }
	}
	return func(dst, v []byte) []byte { return append64(dst, int64(binary.LittleEndian.Uint64(v))) }
}

func appendInterval(dst, data []byte) []byte {
	for i, name := range []string{`{"months":`, `,"days":`, `,"milliseconds":`} {
		dst = append(dst, name...)
		dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data[4*i:])), 10)
	}
	return append(dst, '}')
}
