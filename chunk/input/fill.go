package input

import (
	"bytes"
	"fmt"

	"github.com/gpurun/gpurun/internal/files"
)

// filler is one call of Read. The buffer may move while it grows, so records get their bytes at
// the end.
type filler struct {
	reader     *Reader
	batch      *Batch
	maxRecords int
	maxBytes   int

	buffer []byte // the batch's: used bytes, then unused ones
	used   int    // lines up to here have been taken
}

func (f *filler) fill() error {
	r := f.reader
	f.buffer = f.batch.buffer[:0]
	defer f.finish()
	scanned := 0 // buffer[used:scanned] has no newline
	for len(f.batch.Records) < f.maxRecords && r.rest.Length > 0 {
		if newline := bytes.IndexByte(f.buffer[scanned:], '\n'); newline >= 0 {
			end := scanned + newline
			if !f.addLine(end, end+1) {
				return nil
			}
			scanned = f.used
			continue
		}
		begun := int64(len(f.buffer) - f.used) // of the line at used
		unread := r.rest.Length - begun
		switch {
		case begun-1 > r.maxRecord: // one more for the carriage return
			more, err := f.addLong()
			if err != nil || !more {
				return err
			}
			scanned = f.used
		case unread > 0:
			if err := f.readMore(unread); err != nil {
				return err
			}
			scanned = f.used + int(begun)
		default: // the last line has no newline
			if !f.addLine(len(f.buffer), len(f.buffer)) {
				return nil
			}
			scanned = f.used
		}
	}
	return nil
}

// readMore appends the next bytes of the file to the buffer. It discards blank lines before
// the first record, however many there are.
func (f *filler) readMore(unread int64) error {
	if len(f.batch.Records) == 0 && f.used > 0 {
		f.buffer = f.buffer[:copy(f.buffer, f.buffer[f.used:])]
		f.used = 0
	}
	want := int(min(int64(max(f.reader.guess, len(f.buffer)-f.used, minRead)), unread))
	if cap(f.buffer)-len(f.buffer) < want {
		f.batch.buffer = f.buffer
		f.batch.reserve(max(len(f.buffer)+want, 2*cap(f.buffer)), f.reader.alloc)
		f.buffer = f.batch.buffer
	}
	from := f.reader.rest.Offset + int64(len(f.buffer)-f.used)
	room := f.buffer[len(f.buffer) : len(f.buffer)+want]
	n, err := readAt(f.reader.file, room, from)
	f.buffer = f.buffer[:len(f.buffer)+n]
	return err
}

// addLine adds the line buffer[used:end]; next is where the following line starts. If the
// batch is full, it adds nothing and returns false.
func (f *filler) addLine(end, next int) bool {
	start := f.used
	line := trimReturn(f.buffer[start:end])
	blank := isBlankLine(line)
	if len(f.batch.Records) > 0 && end > f.maxBytes {
		return false
	}
	offset := f.reader.rest.Offset
	f.advance(int64(next-start), blank)
	f.used = next
	if !blank {
		if len(f.batch.Records) == 0 {
			f.batch.begin = start
		}
		f.addRecord(line, offset, int64(len(line)) > f.reader.maxRecord)
	}
	return true
}

// addLong maps the line at used, of which the buffer holds only the beginning. Such a line
// gets its own batch: if this batch already has records, the line begins the next one. It
// reports whether this batch may continue.
func (f *filler) addLong() (bool, error) {
	if len(f.batch.Records) > 0 {
		return false, nil
	}
	r := f.reader
	length, err := f.lineLength()
	if err != nil {
		return false, err
	}
	m, err := files.Map(r.file, r.rest.Offset, length)
	if err != nil {
		return false, fmt.Errorf("map a line of %d bytes: %w", length, err)
	}
	line := trimReturn(bytes.TrimSuffix(m.Data, []byte("\n")))
	blank := isBlankLine(line)
	offset := r.rest.Offset
	f.advance(length, blank)
	f.buffer, f.used = f.buffer[:0], 0
	if blank {
		m.Unmap()
		return true, nil
	}
	f.batch.mapped = append(f.batch.mapped, m)
	f.addRecord(line, offset, true)
	return false, nil
}

// lineLength finds the end of the line at the reader's position.
func (f *filler) lineLength() (int64, error) {
	r := f.reader
	buffer := make([]byte, 1<<20)
	for done := int64(0); done < r.rest.Length; {
		n, err := readAt(r.file, buffer[:min(int64(len(buffer)), r.rest.Length-done)], r.rest.Offset+done)
		if err != nil {
			return 0, err
		}
		if newline := bytes.IndexByte(buffer[:n], '\n'); newline >= 0 {
			return done + int64(newline) + 1, nil
		}
		done += int64(n)
	}
	return r.rest.Length, nil
}

// advance moves the reader past a line.
func (f *filler) advance(bytes int64, blank bool) {
	rest := &f.reader.rest
	rest.Offset += bytes
	rest.Length -= bytes
	rest.Line++
	if !blank {
		rest.First++
		rest.Preceding++
		rest.Records--
	}
}

func (f *filler) addRecord(line []byte, offset int64, tooLong bool) {
	rest := f.reader.rest
	f.batch.Records = append(f.batch.Records, Record{
		Data: line, Index: rest.First - 1, Line: rest.Line - 1, Offset: offset, TooLong: tooLong,
	})
}

// finish sets the bytes of the records.
func (f *filler) finish() {
	f.batch.buffer = f.buffer
	for i := range f.batch.Records {
		if r := &f.batch.Records[i]; len(f.batch.mapped) == 0 {
			start := f.batch.place(i)
			end := start + len(r.Data)
			r.Data = f.buffer[start:end:end]
		}
	}
}

func trimReturn(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\r")) }

func isBlankLine(line []byte) bool {
	for _, ch := range line {
		if !isBlank(ch) {
			return false
		}
	}
	return true
}
