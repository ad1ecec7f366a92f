// Package amend replaces the failed records of a finished output with new results: it copies
// the failed records out (CopyFailed), and after another job has computed them, merges its
// results with the old output into new files (Merge).
//
// It verifies everything that it takes from the old files with the checksums that the job
// recorded, never changes them, and leaves it to the caller to rename the new ones.
package amend
