package record

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// markedMembers finds the members that WriteMarked adds or creates.
var markedMembers = jsonline.Want(ErrorMember, "_raw", "_raw_b64")

// ErrNotMarked means that WriteMarked did not create a line from this failure.
var ErrNotMarked = errors.New("not the failed record")

// WriteUnmarked undoes WriteMarked: it writes the original record of a failure's line,
// which is given without its newline. It does not allocate memory in proportion to the
// line.
//
// The length of the original distinguishes a record that was not an object from one that
// looks like what WriteMarked makes of it.
func WriteUnmarked(w io.Writer, line []byte, f Failure) error {
	var info jsonline.Info
	if err := markedMembers.Scan(line, &info); err != nil || !info.Object {
		return ErrNotMarked
	}
	at, text, coded := info.Spans[0], info.Spans[1], info.Spans[2]
	if !at.Present() || !bytes.Equal(line[at.ValueStart:at.ValueEnd], f.Mark().appendJSON(nil)) {
		return ErrNotMarked
	}
	var sum chunk.FileSum
	summed := io.MultiWriter(w, &sum)
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
	if err == nil && (sum.Bytes != f.Length || chunk.CRC(sum.CRC) != f.CRC32C) {
		err = ErrNotMarked
	}
	return err
}

// withoutMember returns what precedes a member and its comma in a line.
func withoutMember(line []byte, at jsonline.Span) []byte {
	return bytes.TrimSuffix(line[:at.KeyStart], []byte(","))
}

// Mark returns the mark of the failure's record.
func (f Failure) Mark() Mark {
	return Mark{Kind: f.Kind, Message: f.Message, Step: f.Step, File: f.Source, Line: f.Line, Row: f.Rows}
}
