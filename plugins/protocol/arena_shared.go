package protocol

import (
	"fmt"
	"os"
	"strconv"

	"github.com/gpurun/gpurun/internal/shmem"
)

// newArena creates an arena and returns the worker's end and the file that the kernel
// process inherits. The caller must close the file.
func NewArena() (*Arena, *os.File, error) {
	a, file, err := MakeArena(ArenaSize)
	if err != nil { // a limit on files or on address space
		a, file, err = MakeArena(SmallArenaSize)
	}
	return a, file, err
}

func MakeArena(size uint64) (*Arena, *os.File, error) {
	file, err := shmem.Create("gpurun-arena", int(size))
	if err != nil {
		return nil, nil, err
	}
	a, err := MapArena(int(file.Fd()), size, true)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return a, file, nil
}

// mapArena maps both halves; the first is the worker's.
func MapArena(fd int, size uint64, worker bool) (*Arena, error) {
	half := size / 2
	a := &Arena{peerAt: half}
	if !worker {
		a.ownAt, a.peerAt = half, 0
	}
	var err error
	if a.Own, err = shmem.Map(fd, int(a.ownAt), int(half), true); err != nil {
		return nil, err
	}
	if a.Peer, err = shmem.Map(fd, int(a.peerAt), int(half), false); err != nil {
		shmem.Unmap(a.Own)
		return nil, err
	}
	a.space = shmem.NewSpace(a.Own, Outsized)
	a.unmap = func() {
		shmem.Unmap(a.Own)
		shmem.Unmap(a.Peer)
	}
	return a, nil
}

// inheritArena maps the arena that this process inherited from the worker, if any. It
// closes the descriptor and unsets the variable, so that the kernel's own children do not
// inherit them.
func InheritArena() *Arena {
	value := os.Getenv(ArenaVariable)
	if value == "" {
		return nil
	}
	_ = os.Unsetenv(ArenaVariable)
	a, err := openArena(value)
	if err != nil {
		fmt.Fprintf(os.Stderr, "receiving records through the socket, which is slower: %v\n", err)
	}
	return a
}

func openArena(value string) (*Arena, error) {
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("invalid %s=%q", ArenaVariable, value)
	}
	size := shmem.Size(fd)
	if size == 0 { // a wrapper may have opened another file in its place
		return nil, fmt.Errorf("descriptor %d is not the shared memory: a wrapper between worker and kernel may have closed it", fd)
	}
	defer os.NewFile(uintptr(fd), "gpurun-arena").Close() // the mappings remain valid
	return MapArena(fd, uint64(size), false)
}
