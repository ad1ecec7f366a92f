package jsonline

import "bytes"

// Member is a name and its value.
type Member struct {
	Name  string
	Value []byte // valid JSON, copied as it is; one level deeper in the line than it is alone
}

// Splice appends line to dst with the members set: the value of one that
// exists is replaced in place (of a duplicate key, the last), the others are
// added before the closing brace in the order given. Every other byte of line
// is copied as it is, white space included.
//
// info must come from a Scan of this very line, must be of an object, and the
// Wanted must have listed exactly the names of the members, in their order and
// each once. Splice panics when it can see that this is not so.
func Splice(dst, line []byte, info *Info, members []Member) []byte {
	if !info.Object || len(members) != len(info.Spans) {
		panic("jsonline: Splice with an Info that is not of these members in an object")
	}
	from := 0
	for k := next(info.Spans, -1); k >= 0; k = next(info.Spans, info.Spans[k].KeyStart) {
		dst = append(dst, line[from:info.Spans[k].ValueStart]...)
		dst = append(dst, members[k].Value...)
		from = info.Spans[k].ValueEnd
	}
	dst = append(dst, line[from:info.Close]...)
	first := info.Empty
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

// Without appends line to dst without a member of the object that it is. span must come
// from a Scan of this very line.
func Without(dst, line []byte, span Span) []byte {
	before, behind := bytes.TrimRight(line[:span.KeyStart], white), bytes.TrimLeft(line[span.ValueEnd:], white)
	if shorter, ok := bytes.CutSuffix(before, comma); ok {
		before = shorter
	} else {
		behind = bytes.TrimPrefix(behind, comma)
	}
	return append(append(dst, before...), behind...)
}

const white = " \t\r\n"

var comma = []byte(",")

// Keep appends to dst an object with only the wanted members of line, as far
// as it has them, in the line's own order: {"id":1,"url":"x"}. Each is copied
// as it is written, from the key's opening quote to the end of the value. info
// must come from a Scan of this very line; of a line that is no object, or has
// none of the members, {} is kept.
func Keep(dst, line []byte, info *Info) []byte {
	dst = append(dst, '{')
	first := true
	for k := next(info.Spans, -1); k >= 0; k = next(info.Spans, info.Spans[k].KeyStart) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, line[info.Spans[k].KeyStart:info.Spans[k].ValueEnd]...)
	}
	return append(dst, '}')
}

// next returns the index of the first present span, by place in the line, that
// starts after offset, or -1. Calling it for each span is quadratic, but there
// are few of them, and nothing is allocated to sort.
func next(spans []Span, offset int) int {
	best := -1
	for k, s := range spans {
		if s.Present() && s.KeyStart > offset && (best < 0 || s.KeyStart < spans[best].KeyStart) {
			best = k
		}
	}
	return best
}
