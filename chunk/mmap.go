package chunk

import (
	"os"
	"syscall"
)

// mapping is a mapped range of a file, for lines too long to read.
type mapping struct {
	whole []byte // from a page border
	data  []byte
}

func mapFile(file *os.File, offset, length int64) (mapping, error) {
	page := int64(os.Getpagesize())
	lead := offset % page
	whole, err := syscall.Mmap(int(file.Fd()), offset-lead, int(lead+length), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return mapping{}, err
	}
	return mapping{whole: whole, data: whole[lead : lead+length]}, nil
}

func (m mapping) unmap() {
	if m.whole != nil {
		_ = syscall.Munmap(m.whole)
	}
}
