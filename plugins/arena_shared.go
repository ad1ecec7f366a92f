package plugins

import (
	"fmt"
	"os"
	"strconv"

	"github.com/gpurun/gpurun/internal/shmem"
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
	file, err := shmem.Create("gpurun-arena", int(size))
	if err != nil {
		return nil, nil, err
	}
	a, err := mapArena(int(file.Fd()), size, true)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return a, file, nil
}

// mapArena maps both halves; the first is the worker's.
func mapArena(fd int, size uint64, worker bool) (*arena, error) {
	half := size / 2
	a := &arena{peerAt: half}
	if !worker {
		a.ownAt, a.peerAt = half, 0
	}
	var err error
	if a.own, err = shmem.Map(fd, int(a.ownAt), int(half), true); err != nil {
		return nil, err
	}
	if a.peer, err = shmem.Map(fd, int(a.peerAt), int(half), false); err != nil {
		shmem.Unmap(a.own)
		return nil, err
	}
	a.space = shmem.NewSpace(a.own, outsized)
	a.unmap = func() {
		shmem.Unmap(a.own)
		shmem.Unmap(a.peer)
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
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("invalid %s=%q", arenaVariable, value)
	}
	size := shmem.Size(fd)
	if size == 0 { // a wrapper may have opened another file in its place
		return nil, fmt.Errorf("descriptor %d is not the shared memory: a wrapper between worker and kernel may have closed it", fd)
	}
	defer os.NewFile(uintptr(fd), "gpurun-arena").Close() // the mappings remain valid
	return mapArena(fd, uint64(size), false)
}
