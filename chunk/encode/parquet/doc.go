// Package parquet writes results as a Parquet file.
//
//	rows ──Group.Add, Group.Finish──► bytes of a row group, and a description of it   (any order, in parallel)
//	Head, row groups in order, Tail ──► a file
//
// The bytes of a row group depend on its rows and the schema alone, not on its place in the
// file, so row groups can be encoded ahead and a resumed job writes the same file again.
// Typed columns go into the file as the bytes that the kernel returned, never through text.
//
// Values are in dictionaries where they repeat, else plain, in pages that are compressed with
// zstd and have a checksum. The file has an index of its pages. docs/parquet.md describes the
// columns.
package parquet
