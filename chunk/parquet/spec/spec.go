// Package spec holds the numbers of the Parquet format, as parquet.thrift of Apache Parquet
// defines them: types and their sizes, encodings, codecs, pages, and the fields of the structs
// in a file's metadata. The writer and the reader share them.
package spec

// Magic begins and ends a file.
const Magic = "PAR1"

// JSONColumns is the key under which a file lists, as a JSON array, its columns of JSON text.
// They have the logical type STRING: not all readers take JSON for text.
const JSONColumns = "gpurun.json"

// MagicEncrypted ends a file whose footer is encrypted.
const MagicEncrypted = "PARE"

// How often a field occurs in its parent.
const (
	Required = 0
	Optional = 1
	Repeated = 2
)

// Physical types: how a value is stored.
const (
	PhysicalBool   = 0
	PhysicalInt32  = 1
	PhysicalInt64  = 2
	PhysicalInt96  = 3
	PhysicalFloat  = 4
	PhysicalDouble = 5
	PhysicalBytes  = 6
	PhysicalFixed  = 7
)

// Size returns the number of bytes of a value; length is that of a fixed-length type. It is 0 if
// the size depends on the value. A boolean takes a byte where it is not packed.
func Size(physical int64, length int) int {
	switch physical {
	case PhysicalBool:
		return 1
	case PhysicalInt32, PhysicalFloat:
		return 4
	case PhysicalInt64, PhysicalDouble:
		return 8
	case PhysicalInt96:
		return 12
	case PhysicalFixed:
		return length
	}
	return 0
}

// Logical types: what a stored value means. They are the fields of the union LogicalType.
const (
	LogicalString    = 1
	LogicalMap       = 2
	LogicalList      = 3
	LogicalEnum      = 4
	LogicalDecimal   = 5
	LogicalDate      = 6
	LogicalTime      = 7
	LogicalTimestamp = 8
	LogicalInteger   = 10
	LogicalNull      = 11
	LogicalJSON      = 12
	LogicalUUID      = 14
	LogicalFloat16   = 15
)

// Units of times. They are the fields of the union TimeUnit.
const (
	UnitMillis = 1
	UnitMicros = 2
	UnitNanos  = 3
)

// Converted types: what a stored value means, for readers that do not know logical types.
const (
	ConvertedUTF8            = 0
	ConvertedMap             = 1
	ConvertedMapKeyValue     = 2
	ConvertedList            = 3
	ConvertedEnum            = 4
	ConvertedDecimal         = 5
	ConvertedDate            = 6
	ConvertedTimeMillis      = 7
	ConvertedTimeMicros      = 8
	ConvertedTimestampMillis = 9
	ConvertedTimestampMicros = 10
	ConvertedUint8           = 11
	ConvertedUint64          = 14
	ConvertedInt8            = 15
	ConvertedInt64           = 18
	ConvertedJSON            = 19
	ConvertedInterval        = 21
)

// Encodings of values and levels.
const (
	EncodingPlain           = 0
	EncodingPlainDictionary = 2
	EncodingRLE             = 3
	EncodingDelta           = 5
	EncodingDeltaLength     = 6
	EncodingDeltaText       = 7
	EncodingRLEDictionary   = 8
	EncodingSplit           = 9
)

// Codecs that compress pages.
const (
	CodecNone   = 0
	CodecSnappy = 1
	CodecGzip   = 2
	CodecLZO    = 3
	CodecBrotli = 4
	CodecLZ4    = 5
	CodecZstd   = 6
	CodecLZ4Raw = 7
)

// Kinds of pages.
const (
	DataPage       = 0
	IndexPage      = 1
	DictionaryPage = 2
	DataPageV2     = 3
)
