// Package jobfile reads and writes job files: the settings of a job as YAML. It knows no
// setting itself: a table of them says what a file may contain, and gives the JSON Schema.
//
// A file is flat: each key is the name of a setting. Every mistake is found in one pass and
// reported with its line and column.
package jobfile
