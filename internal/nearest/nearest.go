// Package nearest suggests the known name that an unknown one most likely misspells.
package nearest

// Of returns the candidate with the smallest edit distance from name, which must be less than
// limit and less than the candidate's length; "" if there is none. Of several, it returns the
// one that shares the most letters with the beginning and the end of name: people drop and
// swap letters inside a word.
func Of(name string, candidates []string, limit int) string {
	best, most := "", -1
	for _, candidate := range candidates {
		d := distance(name, candidate)
		if d >= len(candidate) || d > limit || d == limit && best == "" {
			continue
		}
		if shared := ends(name, candidate); d < limit || shared > most {
			best, limit, most = candidate, d, shared
		}
	}
	return best
}

// Hint is the end of a message about an unknown name: which one may be meant, or otherwise.
func Hint(name string, candidates []string, limit int, otherwise string) string {
	if near := Of(name, candidates, limit); near != "" {
		return "; did you mean " + near + "?"
	}
	return otherwise
}

// ends returns how many letters a and b have in common at their beginning and at their end.
func ends(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
		n++
	}
	return n
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
