package csv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// rowReader splits a stream into rows, and rows into values.
type rowReader struct {
	in        *bufio.Reader
	separator byte
	line      int64 // lines read so far

	// The current row, valid until the next.
	text   []byte // without its line end
	begin  int64  // its first line
	values []value
	broken string // why it is not a row; "" if it is one
}

// value is one value of a row.
type value struct {
	text   []byte // within its quotes, if it has some
	quotes bool   // it contains doubled quotes
}

// maxRow limits the text of one row. A quote that is never closed would otherwise read the
// whole file into memory.
const maxRow = 256 << 20

func newRowReader(r io.Reader, separator byte) *rowReader {
	return &rowReader{in: bufio.NewReaderSize(r, 256<<10), separator: separator}
}

// next reads the next row that is not blank. It returns io.EOF after the last.
func (r *rowReader) next() error {
	for {
		r.text, r.values, r.broken = r.text[:0], r.values[:0], ""
		r.begin = r.line + 1
		if err := r.readLine(); err != nil {
			return err
		}
		if len(lineText(r.text)) > 0 {
			break
		}
	}
	return r.split()
}

// readLine appends a line, with its end, to the text.
func (r *rowReader) readLine() error {
	before := len(r.text)
	for {
		part, err := r.in.ReadSlice('\n')
		r.text = append(r.text, part...)
		if len(r.text) > maxRow {
			return fmt.Errorf("line %d: the row has more than %d MiB; a quote may not be closed", r.begin, maxRow>>20)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(r.text) > before:
			err = nil
		}
		if err == nil {
			r.line++
		}
		return err
	}
}

// lineText returns a line without its end.
func lineText(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// split finds the values of the row. It reads more lines while a quote is open.
func (r *rowReader) split() error {
	at := 0
	for {
		if at < len(r.text) && r.text[at] == '"' {
			end, err := r.quoted(at)
			if err != nil {
				return err
			}
			at = end
		} else {
			end := r.plainEnd(at)
			r.values = append(r.values, value{text: r.text[at:end]})
			at = end
		}
		if at >= len(lineText(r.text)) {
			break
		}
		at++ // the separator
	}
	r.text = lineText(r.text)
	return nil
}

// plainEnd returns the end of the value at an offset that is not quoted. Quotes within it
// are part of it.
func (r *rowReader) plainEnd(at int) int {
	row := lineText(r.text)
	if length := bytes.IndexByte(row[min(at, len(row)):], r.separator); length >= 0 {
		return at + length
	}
	return len(row)
}

// quoted finds the end of the quoted value at an offset and returns what follows it: a
// separator or the end of the row.
func (r *rowReader) quoted(at int) (int, error) {
	start, doubled := at+1, false
	for at++; ; {
		length := bytes.IndexByte(r.text[at:], '"')
		if length < 0 {
			at = len(r.text)
			if err := r.readLine(); errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("line %d: the row has a quote that is never closed", r.begin)
			} else if err != nil {
				return 0, err
			}
			continue
		}
		at += length
		if at+1 >= len(r.text) || r.text[at+1] != '"' {
			break
		}
		doubled = true
		at += 2
	}
	r.values = append(r.values, value{text: r.text[start:at], quotes: doubled})
	at++
	if end := r.plainEnd(at); end > at {
		r.broken = "text after a closing quote"
		return end, nil
	}
	return at, nil
}

// unquoted returns a value with single quotes for doubled ones.
func (v value) unquoted() []byte {
	if !v.quotes {
		return v.text
	}
	return bytes.ReplaceAll(v.text, []byte(`""`), []byte(`"`))
}
