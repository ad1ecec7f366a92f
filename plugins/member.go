package plugins

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Member returns the JSON of a member of record i, as it stands there, and whether
// the record is an object that has it. For the members of Info.Inputs the worker
// has found the place already; others are searched for.
func (b Batch) Member(i int, name string) (value []byte, present bool) {
	record := b.records[i]
	if k := slices.Index(b.inputs, name); k >= 0 {
		span := b.spans[2*(i*len(b.inputs)+k):]
		start, length := span[0], span[1]
		if length == 0 {
			return nil, false
		}
		return record[start : start+length : start+length], true
	}
	var info jsonline.Info
	if jsonline.Want(name).Scan(record, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return nil, false
	}
	return record[info.Spans[0].ValueStart:info.Spans[0].ValueEnd], true
}

// Found reports whether the worker has found the places of the member: Member does
// not search for it then.
func (b Batch) Found(name string) bool { return slices.Contains(b.inputs, name) }

// Text appends to dst the text of a member of record i that is a string. The error
// says what is there instead, in words for a failed record.
func (b Batch) Text(dst []byte, i int, name string) ([]byte, error) {
	value, present := b.Member(i, name)
	switch {
	case !present:
		return dst, fmt.Errorf("the record has no member %q", name)
	case value[0] != '"' || len(value) < 2:
		return dst, fmt.Errorf("member %q is no string", name)
	}
	return jsonline.AppendUnquoted(dst, value), nil
}

// WithInputs notes in the batch where the members of Info.Inputs stand: for each
// record, for each name, the value's first byte and its length, which is 0 where
// the record has no such member. For the caller's side of a kernel.
func (b Batch) WithInputs(names []string, spans []uint32) Batch {
	b, err := b.withSpans(names, spans)
	if err != nil {
		panic(err)
	}
	return b
}

// withSpans is WithInputs for spans from another process.
func (b Batch) withSpans(names []string, spans []uint32) (Batch, error) {
	if len(spans) == 0 {
		return b, nil
	}
	if len(spans) != 2*len(names)*len(b.records) {
		return b, fmt.Errorf("a batch of %d records with %d inputs has %d spans", len(b.records), len(names), len(spans))
	}
	for at := 0; at < len(spans); at += 2 {
		record := b.records[at/2/len(names)]
		if uint64(spans[at])+uint64(spans[at+1]) > uint64(len(record)) {
			return b, fmt.Errorf("an input ends behind its record")
		}
	}
	b.inputs, b.spans = names, spans
	return b, nil
}

// spansOf is what is known of the members that the kernel reads, if it is about
// those.
func (c *client) spansOf(batch Batch) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(batch.inputs, c.inputs) {
		return nil
	}
	return batch.spans
}
