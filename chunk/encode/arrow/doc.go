// Package arrow writes results as an Arrow IPC file.
//
//	rows ──Group.Add, Group.Finish──► bytes of a record batch, and a description of it   (any order, in parallel)
//	Head, record batches in order, Tail ──► a file
//
// The bytes of a record batch depend on its rows and the schema alone, not on its place in the file, so
// batches can be encoded ahead and a resumed job writes the same file again. The head and every batch
// have a multiple of 64 bytes, so that every buffer of the file is aligned.
//
// Buffers are not compressed, so that programs can map the file into memory instead of reading it.
// docs/parquet.md describes the columns.
package arrow
