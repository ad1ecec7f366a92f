package plugins

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newArena creates an arena and returns the worker's end and the file that the kernel
// process inherits. The caller must close the file.
func newArena() (*arena, *os.File, error) {
	a, file, err := makeArena(arenaSize)
	if err != nil { // a limit on files or on address space
		a, file, err = makeArena(smallArenaSize)
	}
	return a, file, err
}

func makeArena(size uint64) (*arena, *os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// Some systems require memfds that cannot be executed; old ones do not know the flag.
	fd, err := unix.MemfdCreate("gpurun-arena", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("gpurun-arena", flags)
	}
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

// sizeSeals fix the size: a kernel that shrinks the file would otherwise kill the worker
// with SIGBUS.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func sealAndMap(fd int, size uint64) (*arena, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("size shared memory: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
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
	for _, half := range [][]byte{a.own, a.peer} {
		_ = unix.Madvise(half, unix.MADV_DONTDUMP) // keep a core dump from including all the holes
	}
	a.unmap = func() {
		_ = unix.Munmap(a.own)
		_ = unix.Munmap(a.peer)
	}
	return a, nil
}

// inheritArena maps the arena that this process inherited from the worker, if any. It
// closes the descriptor and unsets the variable, so that the kernel's own children do not
// inherit them.
func inheritArena() *arena {
	value := os.Getenv(arenaVariable)
	if value == "" {
		return nil
	}
	_ = os.Unsetenv(arenaVariable)
	a, err := takeArena(value)
	if err != nil {
		fmt.Fprintf(os.Stderr, "receiving records through the socket, which is slower: %v\n", err)
	}
	return a
}

func takeArena(value string) (*arena, error) {
	fd, size, err := parseArena(value)
	if err != nil {
		return nil, err
	}
	if !isArena(fd, size) {
		return nil, fmt.Errorf("descriptor %d is not the shared memory: a wrapper between worker and kernel may have closed it", fd)
	}
	defer unix.Close(fd) // the mappings remain valid
	return mapArena(fd, size, false)
}

// isArena reports whether fd is an arena: a wrapper may have closed the inherited
// descriptor and opened another file in its place.
func isArena(fd int, size uint64) bool {
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || stat.Size != int64(size) {
		return false
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&sizeSeals == sizeSeals
}

// pairedArenas returns both ends of an arena in one process; nil if there is none.
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
	unmap := host.unmap
	host.unmap = func() { // the kernel's end may stay mapped, but releases its memory
		dropPages(host.own)
		dropPages(kernel.own)
		unmap()
	}
	return host, kernel
}

// dropPages returns the pages of data to the system; they read as zeros afterwards.
func dropPages(data []byte) { _ = unix.Madvise(data, unix.MADV_REMOVE) }
