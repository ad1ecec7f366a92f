package jsonline

import (
	"bytes"
	"slices"
)

// Member is a name and its value.
type Member struct {
	Name  string
	Value []byte // valid JSON, copied verbatim; it is nested one level deeper in the line
}

// Splice appends line to dst with the members set. It replaces the value of an existing
// member in place (the last one, if the key occurs twice) and adds the others before the
// closing brace, in the given order. It copies every other byte of line verbatim,
// including white space.
//
// info must come from a Scan of this line, which must be an object. The Wanted must have
// listed exactly the names of the members, in the same order and each once. Splice panics
// if it detects a violation.
func Splice(dst, line []byte, info *Info, members []Member) []byte {
	if !info.Object || len(members) != len(info.Spans) {
		panic("jsonline: Splice needs the Info of an object that was scanned for these members")
	}
	from := 0
	var few [8]int
	for _, k := range inOrder(few[:0], info.Spans) {
		dst = append(dst, line[from:info.Spans[k].ValueStart]...)
		dst = append(dst, members[k].Value...)
		from = info.Spans[k].ValueEnd
	}
	dst = append(dst, line[from:info.Close]...)
	first := info.Members == 0
	for k, m := range members {
		if info.Spans[k].Present() {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = AppendString(dst, m.Name)
		dst = append(dst, ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, line[info.Close:]...)
}

// Set returns a copy of line with the members set, as Splice sets them. It returns false if the
// line is not a valid object.
func Set(line []byte, members ...Member) ([]byte, bool) {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	var info Info
	if Want(names...).Scan(line, &info) != nil || !info.Object {
		return nil, false
	}
	return Splice(nil, line, &info, members), true
}

// Without appends line to dst without one member. line must be an object, and span must
// come from a Scan of this line.
func Without(dst, line []byte, span Span) []byte {
	before, after := bytes.TrimRight(line[:span.KeyStart], white), bytes.TrimLeft(line[span.ValueEnd:], white)
	if shorter, ok := bytes.CutSuffix(before, comma); ok {
		before = shorter
	} else {
		after = bytes.TrimPrefix(after, comma)
	}
	return append(append(dst, before...), after...)
}

const white = " \t\r\n"

var comma = []byte(",")

// Keep appends to dst an object with only the wanted members that line has, in their
// original order: {"id":1,"url":"x"}. It copies each verbatim, from the key's opening
// quote to the end of the value. info must come from a Scan of this line. If the line is
// not an object, or has none of the members, Keep appends {}.
func Keep(dst, line []byte, info *Info) []byte {
	dst = append(dst, '{')
	first := true
	var few [8]int
	for _, k := range inOrder(few[:0], info.Spans) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, line[info.Spans[k].KeyStart:info.Spans[k].ValueEnd]...)
	}
	return append(dst, '}')
}

// inOrder appends the indexes of the spans that are present to list, in line order, and only
// one of those that are the same.
func inOrder(list []int, spans []Span) []int {
	for k, s := range spans {
		if s.Present() {
			list = append(list, k)
		}
	}
	if len(list) <= 1 {
		return list
	}
	slices.SortFunc(list, func(a, b int) int { return spans[a].KeyStart - spans[b].KeyStart })
	return slices.CompactFunc(list, func(a, b int) bool { return spans[a] == spans[b] })
}
