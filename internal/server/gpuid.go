package server

import (
	"encoding/json"
	"errors"
	"strconv"
)

// gpuID identifies a GPU: its index, which JSON encodes as a number, or GPU:INSTANCE of a
// MIG instance ("2:0"). Requests may give a UUID instead.
type gpuID string

// MarshalJSON implements json.Marshaler.
func (id gpuID) MarshalJSON() ([]byte, error) {
	if index, err := strconv.Atoi(string(id)); err == nil {
		return strconv.AppendInt(nil, int64(index), 10), nil
	}
	return json.Marshal(string(id))
}

// UnmarshalJSON implements json.Unmarshaler.
func (id *gpuID) UnmarshalJSON(data []byte) error {
	var index uint
	if json.Unmarshal(data, &index) == nil {
		*id = gpuID(strconv.FormatUint(uint64(index), 10))
		return nil
	}
	if json.Unmarshal(data, (*string)(id)) != nil {
		return errors.New("gpu_id must be the index of a GPU (0), a MIG instance (\"2:0\") or a UUID")
	}
	return nil
}
