package plugins

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newArena makes the worker's end of an arena, and the file that the kernel process
// inherits. The caller closes the file.
func newArena() (*arena, *os.File, error) {
	a, file, err := makeArena(arenaSize)
	if err != nil { // a limit on files or on address space
		a, file, err = makeArena(smallArenaSize)
	}
	return a, file, err
}

func makeArena(size uint64) (*arena, *os.File, error) {
	fd, err := unix.MemfdCreate("gpurun-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make shared memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "gpurun-arena")
	a, err := sealAndMap(fd, size)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return a, file, nil
}

// sealAndMap fixes the size first: a kernel that could shrink the file would kill
// the worker with SIGBUS.
func sealAndMap(fd int, size uint64) (*arena, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("size shared memory: %w", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	return mapArena(fd, size, true)
}

// mapArena maps both halves; the first is the worker's.
func mapArena(fd int, size uint64, worker bool) (*arena, error) {
	half := size / 2
	a := &arena{ownAt: 0, peerAt: half, space: space{size: half}, inlineBelow: inlineBelow}
	if !worker {
		a.ownAt, a.peerAt = half, 0
	}
	var err error
	if a.own, err = unix.Mmap(fd, int64(a.ownAt), int(half), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	if a.peer, err = unix.Mmap(fd, int64(a.peerAt), int(half), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		_ = unix.Munmap(a.own)
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	a.unmap = func() {
		_ = unix.Munmap(a.own)
		_ = unix.Munmap(a.peer)
	}
	return a, nil
}

// inheritArena takes the arena that the worker left to this process, if any. Its
// descriptor and variable are not for the processes that the kernel starts.
func inheritArena() *arena {
	value := os.Getenv(arenaVariable)
	if value == "" {
		return nil
	}
	_ = os.Unsetenv(arenaVariable)
	fd, size, err := parseArena(value)
	if err != nil {
		return nil
	}
	unix.CloseOnExec(fd)
	a, err := mapArena(fd, size, false)
	if err != nil {
		return nil // records then come inline
	}
	_ = unix.Close(fd) // the mappings stay
	return a
}

// pairedArenas are both ends of an arena, in one process; nil where there is none.
func pairedArenas(size uint64) (host, kernel *arena) {
	host, file, err := makeArena(size)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	if kernel, err = mapArena(int(file.Fd()), host.size(), false); err != nil {
		host.close()
		return nil, nil
	}
	return host, kernel
}

// dropPages gives the memory behind data back; it reads as zeros afterwards.
func dropPages(data []byte) { _ = unix.Madvise(data, unix.MADV_REMOVE) }
