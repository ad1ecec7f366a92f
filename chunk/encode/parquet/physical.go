package parquet

import "github.com/gpurun/gpurun/chunk/parquet/spec"

// physical returns how the values, or those of a list, are stored.
func (t Type) physical() int64 {
	switch t = t.base(); t {
	case Bool:
		return spec.PhysicalBool
	case Int64, Uint64:
		return spec.PhysicalInt64
	case Float32:
		return spec.PhysicalFloat
	case Float64:
		return spec.PhysicalDouble
	case String, JSON, UUID, Bytes:
		return spec.PhysicalBytes
	case Int8, Int16, Int32, Uint8, Uint16, Uint32, Date:
		return spec.PhysicalInt32
	}
	switch of, _ := t.traits(); {
	case of.length > 0:
		return spec.PhysicalFixed
	case (of.kind == Time || of.kind == TimeUTC) && of.unit == millis:
		return spec.PhysicalInt32
	}
	return spec.PhysicalInt64
}

// writeMeaning writes what the stored values mean: the converted and the logical type.
func (t Type) writeMeaning(w *thriftWriter) {
	of, _ := t.traits()
	switch of.kind {
	case String, JSON, UUID: // polars takes the logical type JSON for bytes, Spark refuses that of UUIDs
		w.i32(spec.ElementConverted, spec.ConvertedUTF8)
		writeLogical(w, spec.LogicalString)
	case Date:
		w.i32(spec.ElementConverted, spec.ConvertedDate)
		writeLogical(w, spec.LogicalDate)
	case decimal:
		w.i32(spec.ElementConverted, spec.ConvertedDecimal)
		w.i32(spec.ElementScale, int64(of.scale))
		w.i32(spec.ElementPrecision, int64(of.digits))
		w.begin(spec.ElementLogical)
		w.begin(spec.LogicalDecimal)
		w.i32(spec.DecimalScale, int64(of.scale))
		w.i32(spec.DecimalPrecision, int64(of.digits))
		w.end()
		w.end()
	case Int8, Int16, Uint8, Uint16, Uint32, Uint64: // int32 and int64 have no other meaning
		t.writeInteger(w, of.bits)
	case Time, TimeUTC, Timestamp, TimestampUTC:
		of.writeTime(w)
	}
}

// writeInteger writes the size of an integer and whether it has a sign.
func (t Type) writeInteger(w *thriftWriter, bits int) {
	converted := int64(spec.ConvertedInt8)
	if t.isUnsigned() {
		converted = spec.ConvertedUint8
	}
	for size := 8; size < bits; size *= 2 {
		converted++
	}
	w.i32(spec.ElementConverted, converted)
	w.begin(spec.ElementLogical)
	w.begin(spec.LogicalInteger)
	w.i8(spec.IntegerBits, byte(bits))
	w.boolean(spec.IntegerSigned, !t.isUnsigned())
	w.end()
	w.end()
}

// writeTime writes the unit of a time and whether it is adjusted to UTC. Readers of converted
// types assume that all times are adjusted.
func (of traits) writeTime(w *thriftWriter) {
	utc := of.kind == TimeUTC || of.kind == TimestampUTC
	logical, converted := int64(spec.LogicalTime), int64(spec.ConvertedTimeMillis)
	if of.kind == Timestamp || of.kind == TimestampUTC {
		logical, converted = spec.LogicalTimestamp, spec.ConvertedTimestampMillis
	}
	if utc && of.unit != nanos { // which has no converted type
		w.i32(spec.ElementConverted, converted+int64(of.unit-millis))
	}
	w.begin(spec.ElementLogical)
	w.begin(logical)
	w.boolean(spec.TimeUTC, utc)
	w.begin(spec.TimeUnit)
	w.begin(int64(of.unit))
	w.end()
	w.end()
	w.end()
	w.end()
}
