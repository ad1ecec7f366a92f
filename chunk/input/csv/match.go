package csv

import (
	"bytes"
	"encoding/json"
)

// matchRows is how many rows must have as many values as the header.
const matchRows = 2

// Match reports whether content that starts with head looks like a table: a header, and
// rows with as many values as it, two or more. One row in ten may be broken. whole means
// that head is all of the content. JSON lines are never a table.
func Match(head []byte, whole bool, separator byte) bool {
	if !whole { // the last line may be incomplete
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	head = bytes.TrimPrefix(head, []byte(byteOrderMark))
	if isJSON(head) || bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	rows := newRowReader(bytes.NewReader(head), separator)
	if rows.next() != nil || len(rows.values) < 2 || rows.broken != "" {
		return false
	}
	width, matching, others := len(rows.values), 0, 0
	for rows.next() == nil {
		switch {
		case rows.text[0] == '{' || rows.text[0] == '[': // JSON lines whose first line is broken
			return false
		case rows.broken == "" && len(rows.values) == width:
			matching++
		default:
			others++
		}
	}
	return matching >= matchRows && others <= matching/9
}

// isJSON reports whether the first line begins like a JSON object or array, or is JSON.
func isJSON(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return len(line) == 0 || line[0] == '{' || line[0] == '[' || json.Valid(line)
}
