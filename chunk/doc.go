// Package chunk is how input becomes records, records become chunks, and
// finished segments become ordered output.
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
// A record is one line. Its bytes are never re-encoded: what a kernel leaves
// unchanged comes out as it went in. A byte order mark at the start of a file
// and the carriage return before a line feed are not part of a record; blank
// lines are skipped and counted.
//
// The package knows nothing of processes, kernels or devices.
package chunk
