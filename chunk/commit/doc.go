// Package commit makes results durable: workers write Parts, and Output appends them in
// input order and records them in a Journal, from which a killed job resumes.
//
//	a worker ──Part──► files of a segment ──Output──► output.partial ──rename──► the output
//	                                         │
//	                                         └──► Journal ──Replay──► State ──► Resume
//
// What a journal line refers to exists when the line does, and what a durable line covers is
// on disk. Nothing has its final name before it is complete. docs/internals/journal-format.md
// describes the files.
//
// A target (target.go, folder.go) is where results go: a file, a pipe, or a folder of
// parts with a manifest. A new output format is a new kind of target.
package commit
