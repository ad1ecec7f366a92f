package minhash

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// Options is the kernel's configuration.
type Options struct {
	// Field is the member with the text.
	Field string `json:"field"`
	// Output is the member that the signature is written to.
	Output string `json:"output"`
	// NumPerm is the number of permutations, and of numbers in a signature.
	NumPerm int `json:"num_perm"`
	// Seed is what the permutations are drawn from.
	Seed int64 `json:"seed"`
	// Shingle is what a text is cut into: "word" or "char".
	Shingle string `json:"shingle"`
	// Size is how many words or characters make a shingle. A text with fewer is
	// one shingle; an empty one has none, and a signature of largest values.
	Size int `json:"size"`
	// Lower makes capital letters small, each by itself: unlike Python's lower
	// it knows no final sigma, and no dot above a small i.
	Lower bool `json:"lower"`
	// Scheme is how hashes are permuted: "affine32" or "legacy".
	Scheme Scheme `json:"scheme"`
}

// What a text is cut into.
const (
	Words = "word"
	Chars = "char"
)

// The limits are far beyond use; they keep a mistyped number from taking all
// memory.
const (
	maxPermutations = 1 << 16
	maxSize         = 1000
)

// Parse reads a configuration; without one, or for what it does not name, the
// defaults are those of datasketch and shingles of 5 words.
func Parse(config plugins.Config) (Options, error) {
	o := Options{Field: "text", Output: "minhash", NumPerm: 128, Seed: 1, Shingle: Words, Size: 5, Scheme: Affine32}
	if err := config.Decode(&o); err != nil {
		return o, err
	}
	if problem := o.problem(); problem != "" {
		return o, fault.New(fault.Incompatible, "kernel configuration: %s", problem)
	}
	return o, nil
}

func (o Options) problem() string {
	switch {
	case o.Field == "":
		return "field is empty: name the member with the text"
	case o.Output == "":
		return "output is empty: name the member for the signature"
	case strings.HasPrefix(o.Output, "_error"):
		return fmt.Sprintf("output cannot be %q: members of that name mark failed records", o.Output)
	case o.NumPerm < 1 || o.NumPerm > maxPermutations:
		return fmt.Sprintf("num_perm is %d: it must be between 1 and %d", o.NumPerm, maxPermutations)
	case o.Seed < 0 || o.Seed > math.MaxUint32:
		return fmt.Sprintf("seed is %d: it must be between 0 and %d", o.Seed, uint32(math.MaxUint32))
	case o.Shingle != Words && o.Shingle != Chars:
		return fmt.Sprintf("shingle is %q: it must be %q or %q", o.Shingle, Words, Chars)
	case o.Size < 1 || o.Size > maxSize:
		return fmt.Sprintf("size is %d: it must be between 1 and %d", o.Size, maxSize)
	case o.Scheme != Affine32 && o.Scheme != Legacy:
		return fmt.Sprintf("scheme is %q: it must be %q or %q", o.Scheme, Affine32, Legacy)
	}
	return ""
}
