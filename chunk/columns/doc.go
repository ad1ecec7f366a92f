// Package columns has the typed columns of results that are stored as raw values beside
// their lines: the layout that all rows of a job share, and converting values to it.
//
// A row is the values of all columns, one after another, little-endian and without gaps. In a
// part, the values are in a file of their own. An index has an entry for each line: its
// length, and whether the line has values. The line of a failed record has none.
package columns
