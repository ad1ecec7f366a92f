package csv

import (
	"bytes"
	"encoding/json"
)

// matchRows is how many rows must have as many values as the header.
const matchRows = 2

// Match reports whether content that starts with head looks like a table: a header whose
// names are text, and rows with as many values, two or more. whole means that head is all of
// the content. JSON lines are never a table.
func Match(head []byte, whole bool, separator byte) bool {
	if !whole { // the last line may be incomplete
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	head = bytes.TrimPrefix(head, []byte(byteOrderMark))
	if isJSON(head) || bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	rows := newRowReader(bytes.NewReader(head), separator)
	if rows.next() != nil || len(rows.values) < 2 {
		return false
	}
	names, err := rows.header()
	if err != nil {
		return false
	}
	found := 0
	for rows.next() == nil {
		if rows.broken != "" || len(rows.values) != len(names) {
			return false
		}
		found++
	}
	return found >= matchRows
}

// isJSON reports whether the first line begins like JSON, or is JSON.
func isJSON(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return len(line) == 0 || line[0] == '{' || line[0] == '[' || json.Valid(line)
}
