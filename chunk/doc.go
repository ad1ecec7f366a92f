// Package chunk turns input into records, groups records into chunks, and assembles
// finished segments into ordered output.
//
//	file ──scan──► count ──ceiling division──► Chunk, Chunk, …   (Source)
//	stdin ──spool files──────────────────────► Chunk, Chunk, …   (Source)
//	                                             │ Reader
//	                                             ▼ records
//	                                           a worker
//	                                             │ Part
//	                                             ▼
//	Output ◄── segments, appended in input order
//
// A record is one line. Its bytes are never re-encoded: a record that the kernel leaves
// unchanged is written out byte for byte. A byte order mark at the start of a file and the
// carriage return before a line feed are not part of a record. Blank lines are skipped and
// counted.
//
// The package knows nothing about processes, kernels or devices.
package chunk
