package plugins

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Member returns the JSON of a member of record i, exactly as written, and whether the
// record is an object that has it. The worker has already located the members in
// Info.Inputs; Member searches for any other.
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
	value = jsonline.Want(name).Value(record, 0)
	return value, value != nil
}

// Found reports whether the worker has located the member, so that Member need not
// search for it.
func (b Batch) Found(name string) bool { return slices.Contains(b.inputs, name) }

// Text appends to dst the text of a member of record i that is a string. Otherwise the
// text of the error is the message for a failed record.
func (b Batch) Text(dst []byte, i int, name string) ([]byte, error) {
	value, present := b.Member(i, name)
	switch {
	case !present:
		return dst, fmt.Errorf("the record has no member %q", name)
	case value[0] != '"' || len(value) < 2:
		return dst, fmt.Errorf("member %q is not a string", name)
	}
	return jsonline.AppendUnquoted(dst, value), nil
}

// WithInputs returns the batch with the locations of the members in Info.Inputs: for each
// record and each name, the offset of the value and its length, which is 0 if the record
// has no such member. It is for callers of a kernel. It panics if the spans do not fit the
// records.
func (b Batch) WithInputs(names []string, spans []uint32) Batch {
	b, err := b.withSpans(names, spans)
	if err != nil {
		panic(err)
	}
	return b
}

// withSpans is WithInputs for spans from another process, with an error instead of a
// panic.
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
			return b, fmt.Errorf("an input ends past its record")
		}
	}
	b.inputs, b.spans = names, spans
	return b, nil
}

// Located returns the members of the record that the worker has located, and where they are:
// see [Batch.WithInputs]. It is for callers of a kernel.
func (r Record) Located() (names []string, spans []uint32) {
	n := 2 * len(r.batch.inputs)
	return r.batch.inputs, r.batch.spans[r.i*n : (r.i+1)*n]
}
