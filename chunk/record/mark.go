package record

import (
	"cmp"
	"encoding/base64"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// ErrorMember is the member that marks a failed record.
const ErrorMember = "_error"

// errorMember finds the mark in a line.
var errorMember = jsonline.Want(ErrorMember)

// Mark is why a record failed. It holds only what depends on the record itself, so that the
// output is the same in every run.
type Mark struct {
	Kind    fault.Kind
	Message string
	Step    string // the kernel's name, or the step's in a chain
	File    string // of several or compressed inputs
	Line    int64
	Row     bool // Line is the number of a row
}

// WriteMarked writes a failed record in the form in which it is kept: the input record with
// the mark as its last member, or in place of a mark it already had. A line that is not a
// JSON object becomes {"_raw": "…"} with the mark (_raw_b64 if it is not UTF-8). It does
// not allocate memory in proportion to the line.
func WriteMarked(w io.Writer, line []byte, mark Mark) error {
	value := mark.appendJSON(nil)
	var info jsonline.Info
	if err := errorMember.Scan(line, &info); err != nil || !info.Object {
		return writeRaw(w, line, value)
	}
	if at := info.Spans[0]; at.Present() {
		return writeAll(w, line[:at.ValueStart], value, line[at.ValueEnd:], newline)
	}
	comma := []byte(`,"_error":`)
	if info.Members == 0 {
		comma = comma[1:]
	}
	return writeAll(w, line[:info.Close], comma, value, line[info.Close:], newline)
}

// maxRow is the size of a record above which a row of a table does not hold its members.
const maxRow = 1 << 20

// WriteRow writes the line that stands for a failed record in a table: its members and the
// mark, or the mark alone if it is not an object or very long.
func WriteRow(w io.Writer, line []byte, mark Mark) error {
	var info jsonline.Info
	if len(line) <= maxRow && errorMember.Scan(line, &info) == nil && info.Object {
		return WriteMarked(w, line, mark)
	}
	return writeAll(w, []byte(`{"_error":`), mark.appendJSON(nil), []byte("}\n"))
}

// member returns the value of a member, nil if the line is not an object that has it.
func member(wanted *jsonline.Wanted, line []byte) []byte {
	var info jsonline.Info
	if wanted.Scan(line, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return nil
	}
	return line[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]
}

// MarkOf returns the mark of a record, or nil if it has none.
func MarkOf(line []byte) []byte { return member(errorMember, line) }

// MessageOf returns the message of a mark, "" if it has none.
func MessageOf(mark []byte) string {
	value := member(messageMember, mark)
	if value == nil || value[0] != '"' {
		return ""
	}
	return string(jsonline.AppendUnquoted(nil, value))
}

// messageMember finds the message in a mark.
var messageMember = jsonline.Want("message")

// rejectedKind is the kind in the mark of a row that the reader of a table rejected. It
// distinguishes the row from a record that failed in an earlier job. It never reaches an
// output: the record fails with kind record.
const rejectedKind = "row"

// WriteRejected writes the text of a row of a table that is not a record, with the reason,
// in the form in which the reader of the table passes it on.
func WriteRejected(w io.Writer, row []byte, reason string) error {
	return writeRaw(w, row, AppendRejection(nil, reason))
}

// AppendRejection appends the value of _error with which the reader of a table passes on a
// row that is not a record.
func AppendRejection(dst []byte, reason string) []byte {
	dst = append(dst, `{"kind":"`+rejectedKind+`","message":`...)
	return append(jsonline.AppendString(dst, reason), '}')
}

// Rejected returns the failure of a record with this mark if the reader of a table rejected
// its row, or nil.
func Rejected(mark []byte) *fault.Error {
	if string(member(kindMember, mark)) != `"`+rejectedKind+`"` {
		return nil
	}
	return fault.BadRow.New("%s", MessageOf(mark))
}

// kindMember finds the kind in a mark.
var kindMember = jsonline.Want("kind")

var newline = []byte("\n")

func writeRaw(w io.Writer, line, mark []byte) (err error) {
	if utf8.Valid(line) {
		if err = writeAll(w, []byte(`{"_raw":`)); err == nil {
			err = jsonline.WriteString(w, line)
		}
	} else if err = writeAll(w, []byte(`{"_raw_b64":"`)); err == nil {
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		_, err = encoder.Write(line)
		err = cmp.Or(err, encoder.Close(), writeAll(w, []byte(`"`)))
	}
	if err != nil {
		return err
	}
	return writeAll(w, []byte(`,"_error":`), mark, []byte("}\n"))
}

func (m Mark) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":`...)
	dst = jsonline.AppendString(dst, m.Kind.String())
	dst = append(dst, `,"message":`...)
	dst = jsonline.AppendString(dst, m.Message)
	for _, optional := range [][2]string{{`,"step":`, m.Step}, {`,"file":`, m.File}} {
		if optional[1] != "" {
			dst = jsonline.AppendString(append(dst, optional[0]...), optional[1])
		}
	}
	dst = append(dst, ',')
	return append(appendLine(dst, m.Line, m.Row), '}')
}

// appendLine appends the member that says where in its file a record is.
func appendLine(dst []byte, line int64, row bool) []byte {
	if row {
		dst = append(dst, `"row":`...)
	} else {
		dst = append(dst, `"line":`...)
	}
	return strconv.AppendInt(dst, line, 10)
}

func writeAll(w io.Writer, pieces ...[]byte) error {
	for _, piece := range pieces {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
