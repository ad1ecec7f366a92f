package parquet

// Magic begins and ends a file.
const Magic = "PAR1"

// JSONColumns is the key under which a file lists, as a JSON array, its columns of JSON text.
// They have the logical type STRING: not all readers take JSON for text.
const JSONColumns = "gpurun.json"

// MagicEncrypted ends a file whose footer is encrypted.
const MagicEncrypted = "PARE"

// How often a field occurs in its parent.
const (
	Required int32 = iota
	Optional
	Repeated
)

// Physical types: how a value is stored.
const (
	PhysicalBool int32 = iota
	PhysicalInt32
	PhysicalInt64
	PhysicalInt96
	PhysicalFloat
	PhysicalDouble
	PhysicalBytes
	PhysicalFixed
)

// Size returns the number of bytes of a value; length is the length of a fixed-length type. It is 0 if
// the size depends on the value. A boolean takes a byte where it is not packed.
func Size(physical, length int32) int {
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
		return int(length)
	}
	return 0
}

// Converted types: what a stored value means, for readers that do not know logical types.
const (
	ConvertedUTF8 int32 = iota
	ConvertedMap
	ConvertedMapKeyValue
	ConvertedList
	ConvertedEnum
	ConvertedDecimal
	ConvertedDate
	ConvertedTimeMillis
	ConvertedTimeMicros
	ConvertedTimestampMillis
	ConvertedTimestampMicros
	ConvertedUint8
	_
	_
	ConvertedUint64
	ConvertedInt8
	_
	_
	ConvertedInt64
	ConvertedJSON
	_
	ConvertedInterval
)

// Encodings of values and levels.
const (
	EncodingPlain           int32 = 0
	EncodingPlainDictionary int32 = 2
	EncodingRLE             int32 = 3
	EncodingDelta           int32 = 5
	EncodingDeltaLength     int32 = 6
	EncodingDeltaText       int32 = 7
	EncodingRLEDictionary   int32 = 8
	EncodingSplit           int32 = 9
)

// Codecs that compress pages.
const (
	CodecNone int32 = iota
	CodecSnappy
	CodecGzip
	CodecLZO
	CodecBrotli
	CodecLZ4
	CodecZstd
	CodecLZ4Raw
)

// Kinds of pages.
const (
	DataPage int32 = iota
	IndexPage
	DictionaryPage
	DataPageV2
)
