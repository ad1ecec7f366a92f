package plugins

import (
	"fmt"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Member returns the JSON of a member of record i, as it stands there, and whether
// the record is an object that has it.
func (b Batch) Member(i int, name string) (value []byte, present bool) {
	record := b.records[i]
	var info jsonline.Info
	if jsonline.Want(name).Scan(record, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return nil, false
	}
	return record[info.Spans[0].ValueStart:info.Spans[0].ValueEnd], true
}

// Text appends to dst the text of a member of record i that is a string. The error
// says what is there instead, in words for a failed record.
func (b Batch) Text(dst []byte, i int, name string) ([]byte, error) {
	value, present := b.Member(i, name)
	switch {
	case !present:
		return dst, fmt.Errorf("the record has no member %q", name)
	case value[0] != '"':
		return dst, fmt.Errorf("member %q is no string", name)
	}
	return jsonline.AppendUnquoted(dst, value), nil
}
