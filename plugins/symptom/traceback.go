package symptom

import "strings"

// causeLines returns the lines of a message that may state a cause, the last first, in
// lowercase and without quoted text.
func causeLines(message string) []string {
	lines := strings.Split(message, "\n")
	var found []string
	add := func(from, to int) {
		for i := to - 1; i >= from; i-- {
			if line := strings.ToLower(withoutQuotes(lines[i])); strings.TrimSpace(line) != "" {
				found = append(found, line)
			}
		}
	}
	for end := len(lines); ; {
		header := lastTraceback(lines[:end])
		if header < 0 {
			add(0, end)
			return found
		}
		add(afterFrames(lines[:end], header+1), end)
		chained := chainedAt(lines[:header])
		if chained < 0 {
			return found // earlier output is unrelated
		}
		end = chained
	}
}

// lastTraceback returns the line at which the last Python traceback begins; -1 if there
// is none.
func lastTraceback(lines []string) int {
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "Traceback (most recent call last)") {
			return i
		}
	}
	return -1
}

// afterFrames returns the line of the exception, which follows the indented frames of a
// traceback. If all lines are indented, it returns the first frame.
func afterFrames(lines []string, from int) int {
	for i := from; i < len(lines); i++ {
		if line := lines[i]; line != "" && line[0] != ' ' && line[0] != '\t' {
			return i
		}
	}
	return from
}

// chainedAt returns the line that links a traceback to the one before it, if the last
// nonempty line is such a link; else -1.
func chainedAt(lines []string) int {
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		switch {
		case line == "":
			continue
		case strings.Contains(line, "The above exception was the direct cause"),
			strings.Contains(line, "During handling of the above exception"),
			// Python, cleaning up after the actual exception.
			strings.HasPrefix(line, "Exception ignored in"):
			return i
		}
		return -1
	}
	return -1
}

// withoutQuotes removes quoted text. An apostrophe within a word is not a quotation
// mark.
func withoutQuotes(line string) string {
	if !strings.ContainsAny(line, `"'`) {
		return line
	}
	var kept strings.Builder
	var quote byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"', c == '\'' && (i == 0 || !wordByte(line[i-1])):
			quote = c
			kept.WriteByte(' ')
		default:
			kept.WriteByte(c)
		}
	}
	return kept.String()
}

func wordByte(c byte) bool {
	return c == '_' || c == '`' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
