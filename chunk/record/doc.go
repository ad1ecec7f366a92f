// Package record keeps failed records: it marks one with the reason in the member _error,
// describes it in a line of failures.jsonl, and recovers its original bytes from both.
//
// Marking depends only on the record and its failure, never on the run, and is reversible.
// No function allocates memory in proportion to a record.
package record
