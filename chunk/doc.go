// Package chunk describes runs of records and what became of them: a [Chunk] is a byte range
// of the input, and a [Segment] is a finished run with its [Tally].
//
// # From records to chunks
//
// [Size] divides n records into k chunks by ceiling division. With one chunk per worker,
// that is the static split: ten records on four workers are 3 + 3 + 3 + 1. A job usually
// has more chunks than workers, so that fast devices take work from slow ones, and rounds
// them up to whole batches, so that none ends with a small one.
//
// # From chunks to segments
//
// A chunk can end at any batch boundary. The finished beginning becomes a Segment. The rest
// is again a chunk ([Chunk.Tail]) and goes back to the queue. A Segment names its part
// files with their checksums, and counts its records: succeeded, failed and dropped.
//
// # Rooms
//
//	chunk/input    the input's files and streams become chunks, and chunks become records
//	chunk/record   a failed record is marked in place, and described in failures.jsonl
//	chunk/commit   finished segments become one ordered, durable output
//	chunk/amend    new results replace the failed records of a finished output
//
// Values of this package travel in messages and in the journal. It knows no file format,
// no process and no device.
package chunk
