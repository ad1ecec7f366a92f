// Package parallel decodes groups of rows at the same time, within a limit of memory, and passes
// their lines on in order.
package parallel
