package jsonline

// The skip functions take the offset of a construct's first byte and return the offset
// after its last one. On failure they return the offset of the offending byte, or
// len(line) if the line ends too early.

// maxDepth is the limit of encoding/json: most consumers of the output could not read
// deeper lines.
const maxDepth = 10000

// failure is why a line is invalid. newSyntaxError makes the message from it, the offset
// and the offending byte, outside the hot path.
type failure uint8

const (
	okay failure = iota
	unexpected
	tooDeep
)

// skipSpace returns the offset of the first byte at or after i that is not white space.
// It is split in two so that the common case, no white space, is inlined.
func skipSpace(line []byte, i int) int {
	if i < len(line) && line[i] > ' ' {
		return i
	}
	return skipSpaces(line, i)
}

func skipSpaces(line []byte, i int) int {
	for i < len(line) {
		switch line[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

// skipValue skips any value; depth is the number of arrays and objects around it.
func skipValue(line []byte, i, depth int) (int, failure) {
	if i >= len(line) {
		return i, unexpected
	}
	switch c := line[i]; c {
	case '"':
		end, _, why := skipString(line, i)
		return end, why
	case '{':
		return (*Wanted)(nil).skipObject(line, i, depth+1, nil)
	case '[':
		return skipArray(line, i, depth+1)
	case 't':
		return skipLiteral(line, i, "true")
	case 'f':
		return skipLiteral(line, i, "false")
	case 'n':
		return skipLiteral(line, i, "null")
	default:
		if c == '-' || isDigit(c) {
			return skipNumber(line, i)
		}
		return i, unexpected
	}
}

// skipObject skips an object, which depth includes. For the outermost object, it records
// the members that w wants in info; for inner ones info is nil.
func (w *Wanted) skipObject(line []byte, i, depth int, info *Info) (int, failure) {
	if depth > maxDepth {
		return i, tooDeep
	}
	i = skipSpace(line, i+1)
	if i < len(line) && line[i] == '}' {
		return i + 1, okay
	}
	for {
		m, at, why := skipMember(line, i, depth)
		if why != okay {
			return at, why
		}
		if info != nil {
			info.Members++
			w.locate(line, m, info)
		}
		i = skipSpace(line, at)
		if i >= len(line) {
			return i, unexpected
		}
		switch line[i] {
		case ',':
			i = skipSpace(line, i+1)
		case '}':
			return i + 1, okay
		default:
			return i, unexpected
		}
	}
}

// member is a Span with details of the key that are needed only while scanning.
type member struct {
	Span
	keyEnd  int  // one past the closing quote
	escaped bool // the key contains a backslash
}

// skipMember skips a key, the colon and the value.
func skipMember(line []byte, i, depth int) (m member, end int, why failure) {
	if i >= len(line) || line[i] != '"' {
		return m, i, unexpected
	}
	m.KeyStart = i
	m.keyEnd, m.escaped, why = skipString(line, i)
	if why != okay {
		return m, m.keyEnd, why
	}
	i = skipSpace(line, m.keyEnd)
	if i >= len(line) || line[i] != ':' {
		return m, i, unexpected
	}
	i = skipSpace(line, i+1)
	m.ValueStart = i
	if i < len(line) && line[i] == '"' { // the most common value: saves a call
		end, _, why = skipString(line, i)
	} else {
		end, why = skipValue(line, i, depth)
	}
	m.ValueEnd = end
	return m, end, why
}

// skipArray skips an array, which depth includes.
func skipArray(line []byte, i, depth int) (int, failure) {
	if depth > maxDepth {
		return i, tooDeep
	}
	i = skipSpace(line, i+1)
	if i < len(line) && line[i] == ']' {
		return i + 1, okay
	}
	for {
		end, why := skipValue(line, i, depth)
		if why != okay {
			return end, why
		}
		i = skipSpace(line, end)
		if i >= len(line) {
			return i, unexpected
		}
		switch line[i] {
		case ',':
			i = skipSpace(line, i+1)
		case ']':
			return i + 1, okay
		default:
			return i, unexpected
		}
	}
}

func skipLiteral(line []byte, i int, literal string) (int, failure) {
	for k := range len(literal) {
		if i+k >= len(line) || line[i+k] != literal[k] {
			return i + k, unexpected
		}
	}
	return i + len(literal), okay
}

// skipNumber skips -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
// The caller checks what follows: in 01 it rejects the 1.
func skipNumber(line []byte, i int) (int, failure) {
	if line[i] == '-' {
		i++
	}
	if i < len(line) && line[i] == '0' {
		i++
	} else {
		start := i
		if i = skipDigits(line, i); i == start {
			return i, unexpected
		}
	}
	if i < len(line) && line[i] == '.' {
		start := i + 1
		if i = skipDigits(line, start); i == start {
			return i, unexpected
		}
	}
	if i < len(line) && line[i]|0x20 == 'e' {
		i++
		if i < len(line) && (line[i] == '+' || line[i] == '-') {
			i++
		}
		start := i
		if i = skipDigits(line, i); i == start {
			return i, unexpected
		}
	}
	return i, okay
}

func skipDigits(line []byte, i int) int {
	for i < len(line) && isDigit(line[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' <= 9 }
