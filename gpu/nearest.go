package gpu

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// didYouMean suggests the nearest of some names, if one is near.
func didYouMean(name string, known iter.Seq[string]) string {
	best, distance := "", max(3, len(name)/3)
	for _, candidate := range slices.Sorted(known) {
		if d := editDistance(strings.ToLower(name), candidate); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return "; there are " + strings.Join(slices.Sorted(known), ", ")
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance counts the letters that must be inserted, deleted or replaced.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
