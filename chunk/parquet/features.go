package parquet

import "encoding/json"

// Features is the key under which the library datasets says what the columns of a file are: images,
// sounds, labels. It takes what is said of a column only if its type fits.
const Features = "huggingface"

type features struct {
	Info struct {
		Features map[string]json.RawMessage `json:"features"`
	} `json:"info"`
}

// Metadata is what a file says of its columns besides their types.
type Metadata struct {
	JSON     []string                   // columns of JSON text
	Features map[string]json.RawMessage // under Features, by column
}

// Read reads what the file says under a key. If that is damaged, nothing is known.
func (m *Metadata) Read(key, value string) {
	switch key {
	case JSONColumns:
		_ = json.Unmarshal([]byte(value), &m.JSON)
	case Features:
		var f features
		_ = json.Unmarshal([]byte(value), &f)
		m.Features = f.Info.Features
	}
}
