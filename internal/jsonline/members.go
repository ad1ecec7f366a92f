package jsonline

import "iter"

// Members calls f for each top-level member of an object, in order, until f returns false.
// It passes the key as written, including the quotes, the unquoted name, and the value as
// written. Both slices are parts of line. If a key occurs twice, f is called twice.
//
// It reports whether the line is a valid object, as far as it was read. If it is not, f has
// been called for the members before the offending byte.
func Members(line []byte, f func(rawKey []byte, name string, value []byte) bool) (object bool) {
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	if i = skipSpace(line, i+1); i >= len(line) || line[i] != '}' {
		for more := true; more; {
			m, end, why := skipMember(line, skipSpace(line, i), 1)
			if why != okay {
				return false
			}
			rawKey := line[m.KeyStart:m.keyEnd:m.keyEnd]
			if !f(rawKey, m.name(rawKey), line[m.ValueStart:end:end]) {
				return true
			}
			i = skipSpace(line, end)
			if more = i < len(line) && line[i] == ','; more {
				i++
			}
		}
	}
	return i < len(line) && line[i] == '}' && skipSpace(line, i+1) == len(line)
}

// Elements returns the elements of an array, which must be valid. Any other value has none.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for more := true; more; {
			i = skipSpace(array, i+1)
			end, why := skipValue(array, i, 1)
			if why != okay || !yield(array[i:end:end]) { // no elements: the "value" was the closing bracket
				return
			}
			i = skipSpace(array, end)
			more = i < len(array) && array[i] == ','
		}
	}
}

func (m member) name(rawKey []byte) string {
	inside := rawKey[1 : len(rawKey)-1]
	if !m.escaped {
		return string(inside)
	}
	return string(appendUnquoted(make([]byte, 0, len(inside)), inside))
}
