// Package parquet reads the rows of a Parquet file as JSON lines.
//
//	footer ──check──► row groups ──┬─ decode 0 ─┐
//	                               ├─ decode 1 ─┼──► lines, in order   (File.Lines)
//	                               └─ decode 2 ─┘
//
// Row groups are decoded in parallel, and only the columns asked for are read. Memory is
// bounded: the pages of the row groups being decoded, and the lines that wait for their turn.
//
// Files come from elsewhere and may be damaged. parquet-go allocates what a file says and
// panics on what it does not expect, so the sizes in the footer and in every page header are
// checked before it sees them, and a panic becomes an error that names the file and the row
// group.
//
// docs/formats.md describes how each type is written.
package parquet
