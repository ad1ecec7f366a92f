package jsonline

// Members calls f for each top-level member of an object, in order, until f
// returns false: with the key as it is written, quotes included, with the name
// that it stands for, and with the value as it is written. Both slices are
// parts of line. A key that occurs twice is given twice.
//
// line must be valid. Of a line that is no object nothing is given.
func Members(line []byte, f func(rawKey []byte, name string, value []byte) bool) {
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return
	}
	for more := true; more; {
		m, end, why := skipMember(line, skipSpace(line, i+1), 1)
		if why != okay { // no members: the "key" was the closing brace
			return
		}
		rawKey := line[m.KeyStart:m.keyEnd:m.keyEnd]
		if !f(rawKey, m.name(rawKey), line[m.ValueStart:end:end]) {
			return
		}
		i = skipSpace(line, end)
		more = i < len(line) && line[i] == ','
	}
}

func (m member) name(rawKey []byte) string {
	inside := rawKey[1 : len(rawKey)-1]
	if !m.escaped {
		return string(inside)
	}
	return string(appendUnquoted(make([]byte, 0, len(inside)), inside))
}
