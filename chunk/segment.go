package chunk

// The files of a part: results, failed records if they go to a separate file, and lines of
// failures.jsonl. partFiles is their number. An empty file is not created.
const (
	Results = iota
	FailedRecords
	Failures
	PartFiles
)

// Segment is a finished run of records: the records First..First+Records of the input, and
// the part that holds their results.
type Segment struct {
	First int64 `json:"first"`
	// Start is where the first record is, Next where the record after the last one is: the
	// rest of the chunk begins there.
	Start Place `json:"start"`
	Next  Place `json:"next"`
	// Part is the prefix of its file names in the folder of parts.
	Part string `json:"part"`
	// Files are its files: results, errors, failures.
	Files [PartFiles]FileSum `json:"files"`
	// Lines is the number of lines in the results.
	Lines int64 `json:"lines"`
	// Columns are the files that hold the values of columns; nil in a job without any.
	Columns *PartColumns `json:"columns,omitempty"`
	// Inner: it ends inside a chunk of the source.
	Inner bool  `json:"inner,omitempty"`
	Tally Tally `json:"tally"`
}

// PartColumns are the files of a part that hold the values of columns: an index with an entry
// for each line of the results, and the values.
type PartColumns struct {
	Index  FileSum `json:"index"`
	Values FileSum `json:"values"`
}

// End returns the number of the record after the last one.
func (s Segment) End() int64 { return s.First + s.Tally.Records }
