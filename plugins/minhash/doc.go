// Package minhash is the kernel that gives each record the MinHash signature of a
// text, for finding near duplicates:
//
//	gpurun run -k minhash --kernel-config '{"field":"text"}' in.jsonl -o out.jsonl
//
// A signature is what the Python package datasketch computes, number by number, so
// that it feeds that package's LSH:
//
//	from datasketch import MinHash
//	m = MinHash(num_perm=128, hashvalues=record["minhash"], scheme="affine32")
//
//	text ──► shingles ──► SHA-1, 32 bits of it ──► num_perm permutations ──► minimum of each
//
// Shingles are runs of words (joined by one space) or of characters, as UTF-8.
// Since version 2.0 datasketch permutes otherwise than before: [Affine32] is what
// MinHash(num_perm, seed) computes now, [Legacy] what it computed until 1.10.
//
// The parts are exported for kernels that compute the same elsewhere, as
// examples/cuda-kernel does: [Options] are the configuration, [Options.Text] the
// text whose shingles count, [Permutations] the numbers to permute with, and a
// [Signer] the computation itself.
package minhash
