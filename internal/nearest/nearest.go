// Package nearest finds what a person may have meant by a name that there is not.
package nearest

// Of returns the first of the candidates that differs from name in the fewest letters,
// in fewer than limit, and in fewer than it has; "" if there is none.
func Of(name string, candidates []string, limit int) string {
	best := ""
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < limit && d < len(candidate) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance counts the letters that must be inserted, deleted or replaced.
func distance(a, b string) int {
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
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
