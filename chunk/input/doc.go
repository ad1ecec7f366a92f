// Package input reads the input: it splits files and streams into chunks, and chunks into
// records.
//
//	Section: plain file ── count, ceiling division (CountFile) ──┐
//	Section: plain file ── pieces of equal numbers of bytes ─────┤
//	Section: decoded file, stream ── spool files ────────────────┴──► Source: Chunk, Chunk, …
//	                                                                    │ Reader
//	                                                                    ▼
//	                                                                  Batch of records
//
// A record is one line. Its bytes are never re-encoded: a record that the kernel leaves
// unchanged is written out byte for byte. A byte order mark at the start of a file and the
// carriage return before a line feed are not part of a record. Blank lines are skipped and
// counted.
//
// A chunk is always a byte range of lines in a file. What is not lines in a regular file is
// decoded and copied to spool files; Reader and everything after it stay as they are. A Log
// describes the chunks, so that a resumed job reads the same ones.
package input
