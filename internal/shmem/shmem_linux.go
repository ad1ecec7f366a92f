package shmem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seals fix the size: a process that shrank the memory would otherwise kill the others
// with SIGBUS.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create creates memory and returns it as a file, which is closed on exec. It is sparse:
// only pages that are written take memory.
func Create(name string, size int) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// Some systems require memfds that cannot be executed; old ones do not know the flag.
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		file.Close()
		return nil, fmt.Errorf("make shared memory of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		file.Close()
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	return file, nil
}

// Size returns the size of the memory that a descriptor is; 0 if Create did not make it.
func Size(fd int) int {
	var stat unix.Stat_t
	found, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || found&seals != seals || unix.Fstat(fd, &stat) != nil {
		return 0
	}
	return int(stat.Size)
}

// Map maps a part of the memory. Core dumps do not include it: they would contain all of
// it, holes too.
func Map(fd, offset, size int, writable bool) ([]byte, error) {
	access := unix.PROT_READ
	if writable {
		access |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(fd, int64(offset), size, access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	_ = unix.Madvise(data, unix.MADV_DONTDUMP)
	return data, nil
}

// Unmap removes a mapping that Map made.
func Unmap(data []byte) { _ = unix.Munmap(data) }

// Drop returns the whole pages of data, at an offset in a mapping, to the system. They
// read as zeros afterwards.
func Drop(mapping []byte, start, end int) {
	page := os.Getpagesize()
	start, end = (start+page-1)/page*page, end/page*page
	if start < end {
		_ = unix.Madvise(mapping[start:end], unix.MADV_REMOVE)
	}
}
