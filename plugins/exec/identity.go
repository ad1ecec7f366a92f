package exec

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// identity checks that a line answers its record: the program repeats one member of
// the record in its answer.
type identity struct {
	member string
	wanted *jsonline.Wanted
	info   jsonline.Info
}

func newIdentity(member string) *identity {
	if member == "" {
		return nil
	}
	return &identity{member: member, wanted: jsonline.Want(member)}
}

// verify returns how many lines are proved to be in place: those up to the last line
// that repeats its record's value. A nonempty line without that value is an error. An
// empty line drops its record and repeats nothing; the next line proves its place.
func (d *identity) verify(batch plugins.Batch, lines [][]byte) (sure int, err error) {
	for i, line := range lines {
		if len(line) == 0 {
			continue
		}
		if err := d.check(batch, i, line); err != nil {
			return sure, err
		}
		sure = i + 1
	}
	return sure, nil
}

func (d *identity) check(batch plugins.Batch, i int, line []byte) error {
	want, _ := batch.Member(i, d.member)
	if d.wanted.Scan(line, &d.info) != nil || !d.info.Object {
		return fmt.Errorf("the line is not a JSON object with member %q", d.member)
	}
	span := d.info.Spans[0]
	if !span.Present() {
		return fmt.Errorf("the line has no member %q", d.member)
	}
	if got := line[span.ValueStart:span.ValueEnd]; !sameValue(want, got) {
		return fmt.Errorf("member %q is %s in the record and %s in the line", d.member, clip(want), clip(got))
	}
	return nil
}

func clip(value []byte) string {
	const most = 40
	if len(value) > most {
		return string(bytes.ToValidUTF8(value[:most], nil)) + "…"
	}
	return string(value)
}

// lacking returns why a record cannot be identified, or "" if it can.
func (d *identity) lacking(batch plugins.Batch, i int) string {
	value, present := batch.Member(i, d.member)
	switch {
	case !present:
		return fmt.Sprintf("exec: the record has no member %q, which exec-id needs to check the answer", d.member)
	case value[0] != '"' && value[0] != '-' && (value[0] < '0' || value[0] > '9'):
		return fmt.Sprintf("exec: member %q is neither a string nor a number, so exec-id cannot check the answer", d.member)
	}
	return ""
}

// sameValue compares two strings or two numbers by value rather than by spelling.
// Integers are compared digit by digit, so that their size does not matter.
func sameValue(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 || (a[0] == '"') != (b[0] == '"') {
		return false
	}
	if a[0] == '"' {
		return bytes.Equal(jsonline.AppendUnquoted(nil, a), jsonline.AppendUnquoted(nil, b))
	}
	if isWhole(a) && isWhole(b) {
		return false
	}
	x, errA := strconv.ParseFloat(string(a), 64)
	y, errB := strconv.ParseFloat(string(b), 64)
	return errA == nil && errB == nil && x == y
}

func isWhole(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }
