package input

import (
	"bytes"
	"errors"
	"io"
)

// CountLines counts the records of a section: its lines that are not blank.
func CountLines(r io.Reader) (records int64, err error) {
	buffer := make([]byte, readBytes)
	counted := false // the current line is a record
	for {
		n, err := r.Read(buffer)
		for data := buffer[:n]; len(data) > 0; {
			if counted {
				newline := bytes.IndexByte(data, '\n')
				if newline < 0 {
					break
				}
				data, counted = data[newline+1:], false
				continue
			}
			if ch := data[0]; ch != '\n' && !isBlank(ch) {
				counted = true
				records++
			}
			data = data[1:]
		}
		switch {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return records, err
		}
	}
}
