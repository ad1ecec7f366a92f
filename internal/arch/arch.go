// Package arch holds the rules of the house as tests: which package may import
// which, which package alone knows which library, and that every package says
// what it is for. ARCHITECTURE.md explains the rules; a change of one is a change
// of both.
package arch
