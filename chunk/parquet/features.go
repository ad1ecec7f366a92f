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

// ReadFeatures returns what a file says under Features, as JSON for each column.
func ReadFeatures(text string) map[string]json.RawMessage {
	var f features
	_ = json.Unmarshal([]byte(text), &f) // if it is damaged, nothing is known
	return f.Info.Features
}
