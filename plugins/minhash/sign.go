package minhash

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"unicode/utf8"
)

// Signer computes signatures. It is not safe for concurrent use; see Clone.
type Signer struct {
	size    int
	words   bool
	permute permuter
	least   []uint32 // of each permutation
	starts  []int    // of the last words or characters, at most size of them
	hashes  []uint32 // of shingles not yet permuted
}

// blockHashes is how many hashes are permuted at a time: they stay in the L1 cache while
// each permutation iterates over them.
const blockHashes = 512

// NewSigner returns a Signer for the given options.
func NewSigner(o Options) *Signer {
	p := NewPermutations(o.Scheme, o.NumPerm, uint32(o.Seed))
	s := &Signer{size: o.Size, words: o.Shingle == Words, permute: newPermuter(o.Scheme, p), least: make([]uint32, o.NumPerm)}
	return s.Clone()
}

// Clone returns a Signer for another goroutine that computes the same signatures.
func (s *Signer) Clone() *Signer {
	return &Signer{
		size: s.size, words: s.words, permute: s.permute,
		least: make([]uint32, len(s.least)), hashes: make([]uint32, 0, blockHashes),
	}
}

// Sign writes the signature of text, which must come from Options.Text, to signature,
// whose length must be Options.NumPerm.
func (s *Signer) Sign(signature []int64, text []byte) {
	for i := range s.least {
		s.least[i] = Largest
	}
	s.cut(text)
	s.flush()
	for i, v := range s.least {
		signature[i] = int64(v)
	}
}

// cut finds the shingles. Once it knows size starts, the shingle at the oldest of them
// ends where the next word or character begins, less the space.
func (s *Signer) cut(text []byte) {
	s.starts = s.starts[:0]
	first := 0 // index of the oldest start, once starts is a ring
	space := 0
	if s.words {
		space = 1
	}
	for at := 0; at < len(text); at = s.following(text, at) {
		if len(s.starts) < s.size {
			s.starts = append(s.starts, at)
			continue
		}
		s.add(text[s.starts[first] : at-space])
		s.starts[first] = at
		if first++; first == s.size {
			first = 0
		}
	}
	if len(s.starts) > 0 {
		s.add(text[s.starts[first]:])
	}
}

// following returns where the word or character after the one at offset at begins.
func (s *Signer) following(text []byte, at int) int {
	if s.words {
		space := bytes.IndexByte(text[at:], ' ')
		if space < 0 {
			return len(text)
		}
		return at + space + 1
	}
	if text[at] < utf8.RuneSelf {
		return at + 1
	}
	_, size := utf8.DecodeRune(text[at:])
	return at + size
}

func (s *Signer) add(shingle []byte) {
	digest := sha1.Sum(shingle)
	s.hashes = append(s.hashes, binary.LittleEndian.Uint32(digest[:]))
	if len(s.hashes) == blockHashes {
		s.flush()
	}
}

func (s *Signer) flush() {
	if len(s.hashes) > 0 {
		s.permute(s.least, s.hashes)
	}
	s.hashes = s.hashes[:0]
}
