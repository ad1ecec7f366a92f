// Package parquet is what the reader and the writer of Parquet files share: the numbers and
// structs of the format (parquet.thrift of Apache Parquet) and their encoding, the types of
// columns and how their values are written in JSON, and rows.
//
// A row is the bytes that go from a result to the encoder, and from the reader to a retry. It
// has for each column of the schema, the column of errors included, the byte 0 for null, or 1
// and a value. A struct has the values of its members, each after the byte 0 if the struct is null, 1 if the
// member is, else 2: the definition level of Parquet. A value is stored as in the encoding PLAIN: little-endian, text after its length
// in four bytes, a boolean as a byte. A list is the number of its elements in four bytes, and the
// elements, which are never null.
//
// The same rows go into Arrow files, whose values differ a little: arrow.go converts them.
package parquet
