// Package arrow reads the rows of Arrow IPC files and streams as JSON lines.
//
//	schema ──► record batches ──┬─ load, write 0 ─┐
//	           dictionaries     ├─ load, write 1 ─┼──► lines, in order   (File.Lines)
//	                            └─ load, write 2 ─┘
//
// A file, and a stream that is in a file, is read at any place: record batches are decoded in
// parallel, and only the buffers of the columns asked for are read. A stream that arrives through a
// pipe is read batch by batch. Memory is bounded: the buffers of the batches being decoded, the
// dictionaries, and the lines that wait for their turn.
//
// Files come from elsewhere and may be damaged. So no length or count in a file is believed:
// nothing is allocated before it is known to fit the bytes that are there, and values are
// read with checked indexes. docs/internals/decisions.md explains why no library does that.
//
// docs/formats.md describes how each type is written.
package arrow
