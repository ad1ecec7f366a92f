// Package csv reads CSV and TSV files with a header as JSON lines: one object per row, with
// the header's names as its members.
//
// It follows RFC 4180: a value may be quoted, a quote in it is doubled, and separators and
// line ends may be part of it. A line ends with a line feed, with or without a carriage
// return before it. Blank lines are skipped. All values are
// strings, unless a column is asked for with another type.
//
// A row that does not have as many values as the header, has text after a closing quote, is
// not UTF-8, or has a value that is not of its column's type becomes a failed record with its text and its line. A quote that is never
// closed ends the input with an error: where the next row would begin is unknown.
package csv
