package plugins

import "testing"

// A record that does not fit a kernel's type fails in the terms of JSON, not of Go.
func TestDecodeErrorsNameJSON(t *testing.T) {
	batch := NewBatch([][]byte{[]byte(`{"id":5}`), []byte(`[1]`)})
	var record struct {
		ID string `json:"id"`
	}
	for i, want := range []string{"record 0: id must be a string, not a number", "record 1: it must be an object, not an array"} {
		if err := batch.Decode(i, &record); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
