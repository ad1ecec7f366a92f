package parquet

// The numbers of Parquet's types.
const (
	physicalBool   = 0
	physicalInt32  = 1
	physicalInt64  = 2
	physicalFloat  = 4
	physicalDouble = 5
	physicalBytes  = 6
	physicalFixed  = 7

	requiredField = 0
	optionalField = 1
	repeatedField = 2

	// The converted types are for readers that do not know the logical ones.
	convertedUTF8            = 0
	convertedList            = 3
	convertedDecimal         = 5
	convertedDate            = 6
	convertedTimeMillis      = 7
	convertedTimeMicros      = 8
	convertedTimestampMillis = 9
	convertedTimestampMicros = 10
	convertedUint8           = 11
	convertedInt8            = 15
	convertedJSON            = 19

	logicalString    = 1
	logicalList      = 3
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalJSON      = 12
	logicalUUID      = 14

	encodingPlain   = 0
	encodingRLE     = 3
	compressionZstd = 6
)

// physical returns how the values, or those of a list, are stored.
func (t Type) physical() int64 {
	switch t = t.base(); t {
	case Bool:
		return physicalBool
	case Int64, Uint64:
		return physicalInt64
	case Float32:
		return physicalFloat
	case Float64:
		return physicalDouble
	case String, JSON, Bytes:
		return physicalBytes
	case Int8, Int16, Int32, Uint8, Uint16, Uint32, Date:
		return physicalInt32
	}
	switch of, _ := t.traits(); {
	case of.length > 0:
		return physicalFixed
	case (of.kind == Time || of.kind == TimeUTC) && of.unit == millis:
		return physicalInt32
	}
	return physicalInt64
}

// writeMeaning writes what the stored values mean: the converted and the logical type.
func (t Type) writeMeaning(w *thriftWriter) {
	of, _ := t.traits()
	switch of.kind {
	case String:
		w.i32(6, convertedUTF8)
		writeLogical(w, logicalString)
	case JSON:
		w.i32(6, convertedJSON)
		writeLogical(w, logicalJSON)
	case UUID:
		writeLogical(w, logicalUUID)
	case Date:
		w.i32(6, convertedDate)
		writeLogical(w, logicalDate)
	case decimal:
		w.i32(6, convertedDecimal)
		w.i32(7, int64(of.scale))
		w.i32(8, int64(of.digits))
		w.begin(10)
		w.begin(logicalDecimal)
		w.i32(1, int64(of.scale))
		w.i32(2, int64(of.digits))
		w.end()
		w.end()
	case Int8, Int16, Uint8, Uint16, Uint32, Uint64: // the others are what plain integers are
		t.writeInteger(w, of.bits)
	case Time, TimeUTC, Timestamp, TimestampUTC:
		of.writeTime(w)
	}
}

// writeInteger writes the size of an integer and whether it has a sign.
func (t Type) writeInteger(w *thriftWriter, bits int) {
	converted := int64(convertedInt8)
	if t.isUnsigned() {
		converted = convertedUint8
	}
	for size := 8; size < bits; size *= 2 {
		converted++
	}
	w.i32(6, converted)
	w.begin(10)
	w.begin(logicalInteger)
	w.i8(1, byte(bits))
	w.boolean(2, !t.isUnsigned())
	w.end()
	w.end()
}

// writeTime writes the unit of a time and whether it is adjusted to UTC. Readers of converted
// types take all times for adjusted.
func (of traits) writeTime(w *thriftWriter) {
	utc := of.kind == TimeUTC || of.kind == TimestampUTC
	logical, converted := int64(logicalTime), int64(convertedTimeMillis)
	if of.kind == Timestamp || of.kind == TimestampUTC {
		logical, converted = logicalTimestamp, convertedTimestampMillis
	}
	if utc && of.unit != nanos { // which has no converted type
		w.i32(6, converted+int64(of.unit-millis))
	}
	w.begin(10)
	w.begin(logical)
	w.boolean(1, utc)
	w.begin(2)
	w.begin(int64(of.unit))
	w.end()
	w.end()
	w.end()
	w.end()
}
