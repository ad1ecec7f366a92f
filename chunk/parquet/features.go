package parquet

import (
	"encoding/json"

	"github.com/gpurun/gpurun/chunk/arrow"
)

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

// Metadata lists the columns of JSON text, and what is known about columns, for files of the schema.
func (s Schema) Metadata() []KeyValue {
	list := []KeyValue{{Key: JSONColumns, Value: s.jsonColumns()}}
	var f features
	f.Info.Features = make(map[string]json.RawMessage)
	for _, c := range s.Columns {
		if c.Feature != "" {
			f.Info.Features[c.Name] = json.RawMessage(c.Feature)
		}
	}
	if text, err := json.Marshal(f); err == nil && len(f.Info.Features) > 0 {
		list = append(list, KeyValue{Key: Features, Value: string(text)})
	}
	return list
}

// ArrowMetadata is the same in Arrow's schema.
func (s Schema) ArrowMetadata() (list []arrow.Fields) {
	for _, kv := range s.Metadata() {
		list = append(list, arrow.Fields{0: kv.Key, 1: kv.Value})
	}
	return list
}
