// Package fields extracts members from the records of a batch, and lays them out in shared memory as the
// columns that Python reads.
package fields

// Area is the offset and length of a part of the shared memory, or of a block in it.
type Area [2]uint64

// Field is one member of every record of a batch.
type Field struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // string, json, int, float, bool; bytes for files, line for whole records
	// Width is the length of each array of numbers, 0 for plain values.
	Width int `json:"width,omitempty"`
	// Missing is the number of records without this member.
	Missing int  `json:"missing,omitempty"`
	ASCII   bool `json:"ascii,omitempty"`
	Data    Area `json:"data"`
	// Lengths holds the lengths of strings and encoded values.
	Lengths *Area `json:"lengths,omitempty"`
}
