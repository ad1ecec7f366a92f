package files

import (
	"os"
	"syscall"
)

// Mapping is a mapped range of a file, for lines too long to read.
type Mapping struct {
	whole []byte // from a page border
	Data  []byte
}

// Map maps a range of a file for reading.
func Map(file *os.File, offset, length int64) (Mapping, error) {
	page := int64(os.Getpagesize())
	lead := offset % page
	whole, err := syscall.Mmap(int(file.Fd()), offset-lead, int(lead+length), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return Mapping{}, err
	}
	return Mapping{whole: whole, Data: whole[lead : lead+length]}, nil
}

// Unmap releases the mapping. That of the zero value does nothing.
func (m Mapping) Unmap() {
	if m.whole != nil {
		_ = syscall.Munmap(m.whole)
	}
}
