package chunk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// A checked line is how logs in the job folder store a value so that damage is found: the
// CRC-32C of the value, a space, the value as JSON, and a line feed.
//
//	8f1c09ab {"segment":{…}}

// AppendLine appends a value as a checked line.
func AppendLine(dst []byte, value any) ([]byte, error) {
	payload, err := json.Marshal(value)
	if err != nil {
		return dst, fmt.Errorf("encode line: %w", err)
	}
	return fmt.Appendf(dst, "%s %s\n", Checksum(payload), payload), nil
}

// ParseLine returns the JSON value of a checked line, given without its line feed.
func ParseLine(line []byte) (payload []byte, err error) {
	sum, payload, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(sum) != 8 {
		return nil, errors.New("truncated line")
	}
	var want CRC
	if err := want.UnmarshalText(sum); err != nil || string(sum) != want.String() {
		return nil, errors.New("invalid checksum")
	}
	if Checksum(payload) != want {
		return nil, errors.New("checksum mismatch")
	}
	return payload, nil
}
