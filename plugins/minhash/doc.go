// Package minhash is the kernel that adds the MinHash signature of a text to each record,
// for finding near duplicates:
//
//	gpurun run -k minhash --kernel-config '{"field":"text"}' in.jsonl -o out.jsonl
//
// The signatures equal those of the Python package datasketch, number for number, so they
// can be used with its LSH:
//
//	from datasketch import MinHash
//	m = MinHash(num_perm=128, hashvalues=record["minhash"], scheme="affine32")
//
//	text ──► shingles ──► SHA-1, 32 bits of it ──► num_perm permutations ──► minimum of each
//
// Shingles are runs of words (joined by single spaces) or of characters, in UTF-8.
// datasketch 2.0 changed its permutations: [Affine32] is what MinHash(num_perm, seed)
// computes now, [Legacy] what it computed up to 1.10.
//
// The parts are exported for kernels that compute the same signatures in another way, such
// as examples/cuda-kernel: [Options] is the configuration, [Options.Text] returns the text
// to cut into shingles, [Permutations] holds the coefficients, and [Signer] computes
// signatures.
package minhash
