//go:build cgo

#include <errno.h>
#include <fcntl.h>

int gpurun_closed_descriptors;

/* Constructors run before main, and so before the runtime of Go. */
__attribute__((constructor)) static void gpurun_look_at_descriptors(void) {
	int fd;
	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
			gpurun_closed_descriptors |= 1 << fd;
}
