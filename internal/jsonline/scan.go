package jsonline

import "math/bits"

// fewNames is the number of bits in the masks of a Wanted.
const fewNames = 64

// Wanted is a set of member names to look for at the top level of an object.
// It is compiled once, used for millions of lines, and safe for concurrent
// use. A nil *Wanted looks for nothing.
type Wanted struct {
	names []string

	// byLength[n%64] has bit k set if names[k] is n bytes long: a single lookup rules out
	// most keys of a line.
	byLength [64]uint64
	// byName has the positions of each name if there are more than masks have bits.
	byName map[string][]int
}

// Want compiles a set of names; Info.Spans has the same order.
func Want(names ...string) *Wanted {
	w := &Wanted{names: append([]string(nil), names...)}
	if len(names) > fewNames {
		w.byName = make(map[string][]int, len(names))
		for k, name := range names {
			w.byName[name] = append(w.byName[name], k)
		}
		return w
	}
	for k, name := range names {
		w.byLength[len(name)%64] |= 1 << k
	}
	return w
}

// Span is the location of a member in its line. The zero Span means that it is absent.
type Span struct {
	KeyStart   int // the opening quote of the key
	ValueStart int // the first byte of the value
	ValueEnd   int // one past the last byte of the value
}

// Present reports whether the member is in the line.
func (s Span) Present() bool { return s.ValueEnd != 0 }

// Info is the result of a Scan. The zero Info is ready for use.
type Info struct {
	Object  bool   // the line is an object
	Close   int    // offset of the object's closing '}', if Object
	Members int    // how many the object has; a key that occurs twice counts twice
	Spans   []Span // in the order of the wanted names; the next Scan reuses the memory
}

// Scan validates line and records in info where the wanted members are. If a key occurs
// twice, the last one counts, as in encoding/json. Keys match by their unquoted names, so
// "\u005ferror" is _error.
//
// Scan accepts exactly what both encoding/json.Valid and unicode/utf8.Valid accept: a
// single value, optionally surrounded by white space, nested at most 10,000 deep.
// Otherwise it returns a *SyntaxError, and info has no object and no members.
//
// The receiver may be nil; info must not be. Concurrent Scans must not share an info.
func (w *Wanted) Scan(line []byte, info *Info) error {
	info.reset(w)
	end, why := w.scan(line, info)
	if why != okay {
		info.reset(w)
		return newSyntaxError(line, end, why)
	}
	return nil
}

// Value returns wanted member k of line; nil if the line is not a valid object or has no such
// member.
func (w *Wanted) Value(line []byte, k int) []byte {
	var info Info
	if w.Scan(line, &info) != nil || !info.Spans[k].Present() {
		return nil
	}
	return line[info.Spans[k].ValueStart:info.Spans[k].ValueEnd]
}

// Valid reports whether Scan would accept line.
func Valid(line []byte) bool {
	var info Info
	_, why := (*Wanted)(nil).scan(line, &info)
	return why == okay
}

func (w *Wanted) scan(line []byte, info *Info) (int, failure) {
	i := skipSpace(line, 0)
	var why failure
	if i < len(line) && line[i] == '{' {
		i, why = w.skipObject(line, i, 1, info)
		info.Object, info.Close = true, i-1
	} else {
		i, why = skipValue(line, i, 0)
	}
	if why != okay {
		return i, why
	}
	if i = skipSpace(line, i); i < len(line) {
		return i, unexpected
	}
	return i, okay
}

func (info *Info) reset(w *Wanted) {
	n := 0
	if w != nil {
		n = len(w.names)
	}
	spans := info.Spans
	if cap(spans) < n {
		spans = make([]Span, n)
	}
	spans = spans[:n]
	clear(spans)
	*info = Info{Spans: spans}
}

// locate records the span of m if its name is wanted.
func (w *Wanted) locate(line []byte, m member, info *Info) {
	if w == nil {
		return
	}
	key := line[m.KeyStart+1 : m.keyEnd-1]
	switch {
	case m.escaped: // it is compared with each name: unquoting it would need a buffer
		for k, name := range w.names {
			if unquotesTo(key, name) {
				info.Spans[k] = m.Span
			}
		}
	case w.byName != nil:
		for _, k := range w.byName[string(key)] {
			info.Spans[k] = m.Span
		}
	default:
		for mask := w.byLength[len(key)%64]; mask != 0; mask &= mask - 1 {
			if k := bits.TrailingZeros64(mask); w.names[k] == string(key) {
				info.Spans[k] = m.Span
			}
		}
	}
}
