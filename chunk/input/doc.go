// Package input reads the input: it splits files and streams into chunks, and chunks into
// records.
//
//	file ──scan──► count ──ceiling division──► Chunk, Chunk, …   (Open)
//	stdin ──spool files──────────────────────► Chunk, Chunk, …   (Spool)
//	                                             │ Reader
//	                                             ▼
//	                                           Batch of records
//
// A record is one line. Its bytes are never re-encoded: a record that the kernel leaves
// unchanged is written out byte for byte. A byte order mark at the start of a file and the
// carriage return before a line feed are not part of a record. Blank lines are skipped and
// counted.
//
// A chunk is always a byte range of lines in a file. A format that is not lines in a regular
// file is decoded into a stream, which Spool copies to files; Reader and everything after it
// stay as they are.
package input
