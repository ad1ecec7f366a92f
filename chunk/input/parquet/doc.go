// Package parquet reads the rows of a Parquet file as JSON lines.
//
//	footer ──check──► row groups ──┬─ decode 0 ─┐
//	                               ├─ decode 1 ─┼──► lines, in order   (File.Lines)
//	                               └─ decode 2 ─┘
//
// Row groups are decoded in parallel, and only the columns asked for are read. Memory is
// bounded: the pages of the row groups being decoded, and the lines that wait for their turn.
//
// Files come from elsewhere and may be damaged. So no length or count in a file is believed:
// nothing is allocated before it is known to fit the bytes that are there, and values are
// decoded with checked indexes. docs/internals/decisions.md explains why no library does that.
//
// docs/formats.md describes how each type is written.
package parquet
