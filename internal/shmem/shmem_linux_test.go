package shmem

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Two mappings see the same bytes, the size is fixed, and dropped pages read as zeros.
func TestSharedMemory(t *testing.T) {
	page := os.Getpagesize()
	file, err := Create("gpurun-test", 8*page)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	data, err := Map(fd, 0, 8*page, true)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(data)
	half, err := Map(fd, 4*page, 4*page, false)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(half)
	for i := range data {
		data[i] = 7
	}
	if half[0] != 7 {
		t.Error("the mappings differ")
	}
	Drop(data, 4*page+1, 7*page+1) // pages 5 and 6
	for at, want := range map[int]byte{3: 7, 4: 7, 5: 0, 6: 0, 7: 7} {
		if data[at*page] != want {
			t.Errorf("page %d: %d", at, data[at*page])
		}
	}
	Drop(data, 1, 2)
	if data[1] != 7 {
		t.Error("a part of a page was dropped")
	}
	if err := file.Truncate(0); err == nil {
		t.Error("the size can change")
	}
	if Size(fd) != 8*page || Size(0) != 0 {
		t.Error("not recognized")
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil {
		t.Error(err)
	}
}
