package record

import (
	"bytes"
	"errors"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// ErrNoObject means that a line has no members.
var ErrNoObject = errors.New("not a JSON object")

// OriginWriter adds a member to lines that says where in the input their record is:
//
//	"source":{"file":"data/b.jsonl.gz","line":1204}
//
// It must not be used concurrently.
type OriginWriter struct {
	wanted  *jsonline.Wanted
	members []jsonline.Member
	info    jsonline.Info
}

// NewOriginWriter returns a writer of the member of this name.
func NewOriginWriter(name string) *OriginWriter {
	return &OriginWriter{wanted: jsonline.Want(name), members: []jsonline.Member{{Name: name}}}
}

// Append appends the lines to dst, each with the member, which replaces one of that name.
// The lines end with a line feed. If one is not an object, it returns ErrNoObject.
func (w *OriginWriter) Append(dst, lines []byte, o chunk.Origin) ([]byte, error) {
	w.members[0].Value = appendOrigin(w.members[0].Value[:0], o)
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, newline)
		if err := w.wanted.Scan(line, &w.info); err != nil || !w.info.Object {
			return dst, ErrNoObject
		}
		dst = append(jsonline.Splice(dst, line, &w.info, w.members), '\n')
		lines = rest
	}
	return dst, nil
}

// appendOrigin appends the value of the member. Standard input is the file "-".
func appendOrigin(dst []byte, o chunk.Origin) []byte {
	if o.File == "" {
		o.File = "-"
	}
	dst = append(dst, `{"file":`...)
	dst = jsonline.AppendString(dst, o.File)
	dst = append(dst, ',')
	return append(appendLine(dst, o.Line, o.Row), '}')
}
