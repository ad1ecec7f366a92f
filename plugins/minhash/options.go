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
	// Output is the member for the signature.
	Output string `json:"output"`
	// NumPerm is the number of permutations, which is also the length of a signature.
	NumPerm int `json:"num_perm"`
	// Seed is the seed of the random permutations.
	Seed int64 `json:"seed"`
	// Shingle is the unit that a shingle consists of: "word" or "char".
	Shingle string `json:"shingle"`
	// Size is the number of words or characters in a shingle. A shorter text is one
	// shingle. An empty text has none, and every value of its signature is Largest.
	Size int `json:"size"`
	// Lower converts the text to lowercase, character by character: unlike Python's
	// lower, it ignores the special cases of final sigma and dotted capital I.
	Lower bool `json:"lower"`
	// Scheme is how hashes are permuted: "affine32" or "legacy".
	Scheme Scheme `json:"scheme"`
}

// Values of Options.Shingle.
const (
	Words = "word"
	Chars = "char"
)

// The limits are far beyond any practical value; they keep a mistyped number from
// exhausting memory.
const (
	maxPermutations = 1 << 16
	maxSize         = 1000
)

// Parse decodes and validates a configuration. Missing members get the defaults of
// datasketch, and shingles of 5 words.
func Parse(config plugins.Config) (Options, error) {
	o := Options{Field: "text", Output: "minhash", NumPerm: 128, Seed: 1, Shingle: Words, Size: 5, Scheme: Affine32}
	if err := config.Decode(&o); err != nil {
		return o, err
	}
	if problem := o.problem(); problem != "" {
		return o, fault.KernelConfig.New("kernel configuration: %s", problem)
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
