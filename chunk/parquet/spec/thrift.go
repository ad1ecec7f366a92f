package spec

// Types of values in Thrift's compact protocol, the encoding of a file's metadata.
const (
	ThriftTrue   = 1
	ThriftFalse  = 2
	ThriftI8     = 3
	ThriftI16    = 4
	ThriftI32    = 5
	ThriftI64    = 6
	ThriftDouble = 7
	ThriftBinary = 8
	ThriftList   = 9
	ThriftSet    = 10
	ThriftMap    = 11
	ThriftStruct = 12
	ThriftUUID   = 13
)

// Fields of FileMetaData, the footer.
const (
	FileVersion            = 1
	FileSchema             = 2
	FileRows               = 3
	FileGroups             = 4
	FileKeyValues          = 5
	FileCreatedBy          = 6
	FileColumnOrders       = 7
	FileEncryption         = 8
	FileFooterKey          = 9
	ColumnOrderTypeDefined = 1 // of the union ColumnOrder: values compare as their type says
)

// Fields of KeyValue.
const (
	KeyValueKey   = 1
	KeyValueValue = 2
)

// Fields of SchemaElement.
const (
	ElementPhysical   = 1
	ElementLength     = 2
	ElementRepetition = 3
	ElementName       = 4
	ElementChildren   = 5
	ElementConverted  = 6
	ElementScale      = 7
	ElementPrecision  = 8
	ElementLogical    = 10
)

// Fields of the structs in LogicalType.
const (
	DecimalScale     = 1
	DecimalPrecision = 2
	IntegerBits      = 1
	IntegerSigned    = 2
	TimeUTC          = 1
	TimeUnit         = 2
)

// Fields of RowGroup.
const (
	GroupColumns  = 1
	GroupUnpacked = 2
	GroupRows     = 3
	GroupOffset   = 5
	GroupPacked   = 6
	GroupOrdinal  = 7
)

// Fields of ColumnChunk.
const (
	ChunkPath              = 1
	ChunkOffset            = 2 // deprecated, but required
	ChunkMeta              = 3
	ChunkEncryption        = 8
	ChunkEncryptedMetadata = 9
)

// Fields of ColumnMetaData.
const (
	ColumnPhysical         = 1
	ColumnEncodings        = 2
	ColumnPath             = 3
	ColumnCodec            = 4
	ColumnValues           = 5
	ColumnUnpacked         = 6
	ColumnPacked           = 7
	ColumnDataOffset       = 9
	ColumnDictionaryOffset = 11
	ColumnStatistics       = 12
)

// Fields of Statistics.
const (
	StatisticsNulls = 3
	StatisticsMax   = 5
	StatisticsMin   = 6
)

// Fields of PageHeader.
const (
	PageKind       = 1
	PageUnpacked   = 2
	PagePacked     = 3
	PageSum        = 4
	PageData       = 5
	PageDictionary = 7
	PageDataV2     = 8
)

// Fields of DataPageHeader. DictionaryPageHeader and DataPageHeaderV2 have PageValues too.
const (
	PageValues             = 1
	PageEncoding           = 2
	PageDefinitionEncoding = 3
	PageRepetitionEncoding = 4
)

// Fields of DataPageHeaderV2.
const (
	PageV2Encoding        = 4
	PageV2DefinitionBytes = 5
	PageV2RepetitionBytes = 6
	PageV2Compressed      = 7
)
