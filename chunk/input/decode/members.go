package decode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// A file can have members that its place gives to every record: kind.members. They are added behind
// the record's own, which win.

// typeNamed returns the type that a list such as "id:int64" gives a column, and whether the list
// names it.
func typeNamed(list []string, name string) (typ string, named bool) {
	for _, column := range list {
		if column == name {
			return "", true
		}
		if typ, ok := strings.CutPrefix(column, name+":"); ok {
			return typ, true
		}
	}
	return "", false
}

// inFile returns the options for the content of a file, which lacks the members that its place gives.
func (k Kind) inFile(o format.Options) format.Options {
	own := slices.DeleteFunc(slices.Clone(o.Columns), func(column string) bool {
		return slices.ContainsFunc(k.members, func(m format.Member) bool {
			_, named := typeNamed([]string{column}, m.Name)
			return named
		})
	})
	if len(own) > 0 { // none would mean all
		o.Columns = own
	}
	return o
}

// added returns the members to add: those that the columns name, with the types that they give.
func (k Kind) added(o format.Options) (added []format.Member) {
	for _, m := range k.members {
		typ, named := typeNamed(o.Columns, m.Name)
		if len(o.Columns) > 0 && !named {
			continue
		}
		if typ == "" {
			typ, _ = typeNamed(o.Types, m.Name)
		}
		if typ == "string" && m.Type != typ {
			m.Type = typ
			if string(m.Value) != "null" {
				m.Value = jsonline.AppendString(nil, m.Text)
			}
		}
		added = append(added, m)
	}
	return added
}

// withMembers adds members to each line.
func withMembers(lines format.Lines, added []format.Member) format.Lines {
	if len(added) == 0 {
		return lines
	}
	w := &memberLines{in: bufio.NewReaderSize(lines.ReadCloser, 1<<20), closer: lines.ReadCloser, first: true}
	var names []string
	for _, m := range added {
		names = append(names, m.Name)
		text := append(jsonline.AppendString(nil, m.Name), ':')
		w.members = append(w.members, append(text, m.Value...))
	}
	w.wanted, w.Next = jsonline.Want(names...), w.next
	lines.ReadCloser = w
	return lines
}

// maxHeld is how long a line may be that gets members. A longer one stays as it is: jobs refuse
// records of that size, unless they allow them.
const maxHeld = 64 << 20

// memberLines are lines with members added.
type memberLines struct {
	in      *bufio.Reader
	closer  io.Closer
	wanted  *jsonline.Wanted
	info    jsonline.Info
	members [][]byte // "name":value
	first   bool     // no line has been read
	long    bool     // the rest of a line that is too long follows
	line    []byte
	out     []byte
	format.Blocks
}

func (l *memberLines) Close() error { return l.closer.Close() }

// next reads a line, or a piece of one that is too long.
func (l *memberLines) next() ([]byte, error) {
	l.line = l.line[:0]
	piece, err := l.in.ReadSlice('\n')
	for l.line = append(l.line, piece...); errors.Is(err, bufio.ErrBufferFull); l.line = append(l.line, piece...) {
		if l.long || len(l.line) >= maxHeld {
			l.long = true
			return l.line, nil
		}
		piece, err = l.in.ReadSlice('\n')
	}
	if l.first {
		l.line, l.first = bytes.TrimPrefix(l.line, []byte(byteOrderMark)), false
	}
	if l.long {
		l.long = false
		return l.line, err
	}
	return l.add(), err
}

// add returns the line with the members that it lacks. What is not an object stays as it is.
func (l *memberLines) add() []byte {
	if l.wanted.Scan(l.line, &l.info) != nil || !l.info.Object {
		return l.line
	}
	l.out = append(l.out[:0], l.line[:l.info.Close]...)
	empty := l.info.Members == 0
	for i, text := range l.members {
		if l.info.Spans[i].Present() {
			continue
		}
		if !empty {
			l.out = append(l.out, ',')
		}
		l.out, empty = append(l.out, text...), false
	}
	return append(l.out, l.line[l.info.Close:]...)
}
