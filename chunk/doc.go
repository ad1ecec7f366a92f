// Package chunk describes runs of records and what became of them: a Chunk is a byte range
// of the input, a Segment is a finished run with its Tally, and Size divides records into
// chunks.
//
//	chunk/input    the input's files and streams become chunks, and chunks become records
//	chunk/record   a failed record is marked in place, and described in failures.jsonl
//	chunk/commit   finished segments become one ordered, durable output
//	chunk/amend    new results replace the failed records of a finished output
//
// Values of this package travel in messages and in the journal. It knows no file format,
// no process and no device.
package chunk
