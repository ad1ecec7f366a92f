package input

import (
	"bytes"
	"errors"
	"io"
)

// CountLines counts the records of a file as a section of a sequence has them: its complete
// lines that are not blank, without a byte order mark. If the file is damaged, it also returns
// the error. The line in which the damage begins does not count.
func CountLines(r io.Reader) (records int64, err error) {
	in := &unmarkedReader{from: r}
	buffer := make([]byte, readBytes)
	counted := false // the current line is a record
	for {
		n, err := in.Read(buffer)
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
		case err != nil && counted:
			return records - 1, err
		case err != nil:
			return records, err
		}
	}
}
