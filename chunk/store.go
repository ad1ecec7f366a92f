package chunk

// Store names how parts keep what became of their records.
type Store string

const (
	// StoreLines keeps results as lines, and failed records among them, unless they are kept
	// apart.
	StoreLines Store = ""
	// StoreTable keeps rows of a table, which do not hold whole records. Failed records are also
	// kept in the separate file, and the positions of failures count rows.
	StoreTable Store = "table"
	// StoreBatch keeps lines of OpenAI's batch files. A failed record has a line with its error
	// there, and is also kept in the separate file.
	StoreBatch Store = "batch"
	// StoreFrames keeps what became of each record apart from the others, so that a program can
	// tell which lines belong to which record; see commit.NextFrame.
	StoreFrames Store = "frames"
)

// Copies reports whether a run of records that are lines already can be written as it is.
func (s Store) Copies() bool { return s == StoreLines || s == StoreTable }
