package chunk

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// markedMembers finds what WriteMarked adds to a line, or makes it of.
var markedMembers = jsonline.Want(ErrorMember, "_raw", "_raw_b64")

// errNotMarked is of a line that WriteMarked has not made of this failure.
var errNotMarked = errors.New("it is not the failed record")

// writeUnmarked writes the record that a failure's line was made of, the line being
// without its end: what WriteMarked has done is undone. It needs no memory of the
// line's size.
//
// How long the record was tells one that is no object from one that looks like what
// is made of it.
func writeUnmarked(w io.Writer, line []byte, f Failure) error {
	var info jsonline.Info
	if err := markedMembers.Scan(line, &info); err != nil || !info.Object {
		return errNotMarked
	}
	at, text, coded := info.Spans[0], info.Spans[1], info.Spans[2]
	if !at.Present() || !bytes.Equal(line[at.ValueStart:at.ValueEnd], f.mark().appendJSON(nil)) {
		return errNotMarked
	}
	summed := &summer{to: w}
	var err error
	switch {
	case f.Replaced != "":
		err = writeAll(summed, line[:at.ValueStart], []byte(f.Replaced), line[at.ValueEnd:])
	case int64(len(withoutMember(line, at))+len(line)-at.ValueEnd) == f.Length:
		err = writeAll(summed, withoutMember(line, at), line[at.ValueEnd:])
	case text.Present() && line[text.ValueStart] == '"':
		err = jsonline.WriteUnquoted(summed, line[text.ValueStart:text.ValueEnd])
	case coded.Present() && line[coded.ValueStart] == '"':
		value := bytes.NewReader(line[coded.ValueStart+1 : coded.ValueEnd-1])
		_, err = io.Copy(summed, base64.NewDecoder(base64.StdEncoding, value))
	}
	if err == nil && (summed.Bytes != f.Length || summed.CRC != uint32(f.CRC32C)) {
		err = errNotMarked
	}
	return err
}

// withoutMember is what stands in a line before a member, and before its comma.
func withoutMember(line []byte, at jsonline.Span) []byte {
	return bytes.TrimSuffix(line[:at.KeyStart], []byte(","))
}

// mark is what the failure's record is marked with.
func (f Failure) mark() Mark {
	return Mark{Kind: f.Kind, Message: f.Message, Step: f.Step, Line: f.Line}
}

// summer takes the sum of what is written through it.
type summer struct {
	to io.Writer
	FileSum
}

func (s *summer) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.add(p[:n])
	return n, err
}
