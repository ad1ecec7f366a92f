// Package nearest suggests the known name that an unknown one most likely misspells.
package nearest

// Of returns the first candidate with the smallest edit distance from name, which must be
// less than limit and less than the candidate's length; "" if there is none.
func Of(name string, candidates []string, limit int) string {
	best := ""
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < limit && d < len(candidate) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance returns the edit distance: the letters to insert, delete or replace.
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
