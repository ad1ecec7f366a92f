package gpu

import (
	"cmp"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

const (
	mpsVariable = "CUDA_MPS_PIPE_DIRECTORY"
	mpsFolder   = "/tmp/nvidia-mps" // if the variable is not set
)

// findMPS returns the pipe folder of the daemon of CUDA's multi-process service (MPS) to which CUDA
// connects in this environment; "" if none is running.
func findMPS(env func(string) (string, bool)) string {
	folder, _ := env(mpsVariable)
	folder = cmp.Or(folder, mpsFolder)
	control := filepath.Join(folder, "control")
	if info, err := os.Stat(control); err == nil && info.Mode()&os.ModeNamedPipe != 0 { // an old driver
		return folder
	}
	// The daemon does not notice a datagram socket, which has the wrong type. A socket that a
	// killed daemon has left refuses it.
	conn, err := net.Dial("unixgram", control)
	switch {
	case err == nil:
		conn.Close()
	case !errors.Is(err, syscall.EPROTOTYPE):
		return ""
	}
	return folder
}
