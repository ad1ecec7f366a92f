package parquet

// Placed is a group of rows in its file: a row group, or a record batch.
type Placed struct {
	Offset int64
	Meta   []byte // describes it; from the encoder
}
