package arrow

// Magic begins a file, followed by two zeros, and ends it.
const Magic = "ARROW1"

// Continuation begins every message. Before 2019, messages began with their length.
const Continuation = 0xffffffff

// Align is what the places and lengths of messages and buffers are multiples of.
const Align = 8

// Kinds of messages.
const (
	SchemaMessage     = 1
	DictionaryMessage = 2
	BatchMessage      = 3
)

// Versions of the metadata that files in use have.
const (
	Version4 = 3
	Version5 = 4
)

// Types of columns.
const (
	Null            = 1
	Int             = 2
	Float           = 3
	Binary          = 4
	Text            = 5
	Bool            = 6
	Decimal         = 7
	Date            = 8
	Time            = 9
	Timestamp       = 10
	Interval        = 11
	List            = 12
	Struct          = 13
	Union           = 14
	FixedSizeBinary = 15
	FixedSizeList   = 16
	Map             = 17
	Duration        = 18
	LargeBinary     = 19
	LargeText       = 20
	LargeList       = 21
	RunEndEncoded   = 22
	BinaryView      = 23
	TextView        = 24
	ListView        = 25
	LargeListView   = 26
)

// Codecs that compress buffers.
const (
	CodecLZ4  = 0
	CodecZstd = 1
)

// Sizes of structs in lists: where a message is in a file; a buffer in a body; rows and nulls of a column.
const (
	BlockBytes  = 24
	BufferBytes = 16
	NodeBytes   = 16
)
