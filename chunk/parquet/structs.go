package parquet

// The structs of the format, as far as they are used. A tag is the number of a field; fields
// with a question mark are left out if they are zero.

// FileMetaData is the footer of a file.
type FileMetaData struct {
	Version      int32           `id:"1"`
	Schema       []SchemaElement `id:"2"` // depth first
	Rows         int64           `id:"3"`
	Groups       []RowGroup      `id:"4"`
	KeyValues    []KeyValue      `id:"5?"`
	CreatedBy    string          `id:"6?"`
	ColumnOrders []ColumnOrder   `id:"7?"`
	Encryption   *Empty          `id:"8"`
	FooterKey    []byte          `id:"9?"`
}

// Empty is a struct whose fields, if it has any, are not used.
type Empty struct{}

// KeyValue is metadata of an application.
type KeyValue struct {
	Key   string `id:"1"`
	Value string `id:"2?"`
}

// ColumnOrder is how the bounds of a column compare.
type ColumnOrder struct {
	ByType *Empty `id:"1"`
}

// SchemaElement is a column, or a group of columns.
type SchemaElement struct {
	Physical   *int32       `id:"1"` // nil: a group
	Length     int32        `id:"2?"`
	Repetition int32        `id:"3"`
	Name       string       `id:"4"`
	Children   int32        `id:"5?"`
	Converted  *int32       `id:"6"`
	Scale      *int32       `id:"7"` // of a decimal
	Precision  int32        `id:"8?"`
	Logical    *LogicalType `id:"10"`
}

// LogicalType is what the values of a column mean. One field is set, none if it is a type that
// is newer than this program.
type LogicalType struct {
	String    *Empty       `id:"1"`
	Map       *Empty       `id:"2"`
	List      *Empty       `id:"3"`
	Enum      *Empty       `id:"4"`
	Decimal   *DecimalType `id:"5"`
	Date      *Empty       `id:"6"`
	Time      *TimeType    `id:"7"`
	Timestamp *TimeType    `id:"8"`
	Integer   *IntegerType `id:"10"`
	Null      *Empty       `id:"11"`
	JSON      *Empty       `id:"12"`
	UUID      *Empty       `id:"14"`
	Float16   *Empty       `id:"15"`
}

// DecimalType is a number with Scale digits after the point.
type DecimalType struct {
	Scale  int32 `id:"1"`
	Digits int32 `id:"2"`
}

// TimeType is a time of day, or a moment.
type TimeType struct {
	UTC  bool     `id:"1"`
	Unit TimeUnit `id:"2"`
}

// TimeUnit is the unit of a time.
type TimeUnit struct {
	Millis *Empty `id:"1"`
	Micros *Empty `id:"2"`
	Nanos  *Empty `id:"3"`
}

// IntegerType is an integer of Bits bits.
type IntegerType struct {
	Bits   int8 `id:"1"`
	Signed bool `id:"2"`
}

// RowGroup is some rows of a file.
type RowGroup struct {
	Columns  []ColumnChunk `id:"1"`
	Unpacked int64         `id:"2"`
	Rows     int64         `id:"3"`
	Offset   int64         `id:"5?"`
	Packed   int64         `id:"6?"`
}

// ColumnChunk is a column of a row group.
type ColumnChunk struct {
	Path              string     `id:"1?"` // of another file
	FileOffset        int64      `id:"2"`  // deprecated, but required
	Meta              ColumnMeta `id:"3"`
	OffsetIndexOffset int64      `id:"4?"`
	OffsetIndexBytes  int32      `id:"5?"`
	ColumnIndexOffset int64      `id:"6?"`
	ColumnIndexBytes  int32      `id:"7?"`
	Encryption        *Empty     `id:"8"`
	EncryptedMeta     []byte     `id:"9?"`
}

// ColumnMeta describes the pages of a column chunk.
type ColumnMeta struct {
	Physical         int32       `id:"1"`
	Encodings        []int32     `id:"2"`
	Path             []string    `id:"3"`
	Codec            int32       `id:"4"`
	Values           int64       `id:"5"` // nulls included
	Unpacked         int64       `id:"6"`
	Packed           int64       `id:"7"`
	DataOffset       int64       `id:"9"`
	DictionaryOffset int64       `id:"11?"`
	Statistics       *Statistics `id:"12"`
}

// Begin returns where the pages of the chunk begin.
func (m *ColumnMeta) Begin() int64 {
	if m.DictionaryOffset > 0 {
		return m.DictionaryOffset
	}
	return m.DataOffset
}

// Statistics are the bounds of the values, if they are known.
type Statistics struct {
	Nulls int64  `id:"3"`
	Max   []byte `id:"5?"`
	Min   []byte `id:"6?"`
}

// ColumnIndex has the bounds of the pages of a column chunk.
type ColumnIndex struct {
	NullPages []bool   `id:"1"` // those without any value
	Min       [][]byte `id:"2"`
	Max       [][]byte `id:"3"`
	Order     int32    `id:"4"`
	Nulls     []int64  `id:"5?"`
}

// OffsetIndex has the places of the data pages of a column chunk.
type OffsetIndex struct {
	Pages []PageLocation `id:"1"`
}

// PageLocation is the place of a page in the file.
type PageLocation struct {
	Offset int64 `id:"1"`
	Bytes  int32 `id:"2"` // with its header
	Row    int64 `id:"3"` // its first, in the row group
}

// PageHeader precedes the bytes of a page.
type PageHeader struct {
	Kind       int32             `id:"1"`
	Unpacked   int32             `id:"2"`
	Packed     int32             `id:"3"`
	Sum        *int32            `id:"4"` // CRC-32
	Data       *DataHeader       `id:"5"`
	Dictionary *DictionaryHeader `id:"7"`
	DataV2     *DataHeaderV2     `id:"8"`
}

// DataHeader is the header of a page in which levels and values are compressed together.
type DataHeader struct {
	Values             int32 `id:"1"`
	Encoding           int32 `id:"2"`
	DefinitionEncoding int32 `id:"3"`
	RepetitionEncoding int32 `id:"4"`
}

// DictionaryHeader is the header of a page with the values of a dictionary.
type DictionaryHeader struct {
	Values   int32 `id:"1"`
	Encoding int32 `id:"2"`
}

// DataHeaderV2 is the header of a page in which levels are not compressed.
type DataHeaderV2 struct {
	Values          int32 `id:"1"`
	Encoding        int32 `id:"4"`
	DefinitionBytes int32 `id:"5"`
	RepetitionBytes int32 `id:"6"`
	Compressed      *bool `id:"7"` // nil: true
}
