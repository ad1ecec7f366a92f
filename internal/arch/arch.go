// Package arch enforces the project's rules as tests: which package may import which, which
// packages may use which library, that every package has a comment, and which phrases
// messages and documents must not contain. ARCHITECTURE.md explains the rules; change both
// together.
package arch
