package gpu_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// Devices name the MPS daemon that CUDA would connect to, only while it is running. With several
// GPUs, UUIDs pin workers: the daemon may number the GPUs in another way.
func TestMPS(t *testing.T) {
	listen := func(t *testing.T, folder string) *net.UnixListener {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(folder, "control"), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	for name, test := range map[string]struct {
		gpus   int
		daemon func(t *testing.T, folder string)
		runs   bool
		uuid   bool
	}{
		"none":              {2, func(*testing.T, string) {}, false, false},
		"one GPU":           {1, func(t *testing.T, folder string) { listen(t, folder) }, true, false},
		"several GPUs":      {2, func(t *testing.T, folder string) { listen(t, folder) }, true, true},
		"a daemon's corpse": {2, func(t *testing.T, folder string) { l := listen(t, folder); l.SetUnlinkOnClose(false); l.Close() }, false, false},
		"an old driver": {1, func(t *testing.T, folder string) {
			if err := syscall.Mkfifo(filepath.Join(folder, "control"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder, err := os.MkdirTemp("", "mps") // short enough for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(folder)
			test.daemon(t, folder)
			opts := gpu.Options{NVML: gputest.New(test.gpus), Env: func(name string) (string, bool) {
				if name != "CUDA_MPS_PIPE_DIRECTORY" {
					return "", false
				}
				return folder, true
			}}
			inventory, err := gpu.Discover(context.Background(), opts)
			if err != nil {
				t.Fatal(err)
			}
			observer := gpu.NewObserver(opts)
			defer observer.Close()
			sight, err := observer.Look(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range inventory.Devices {
				if (d.MPS == folder) != test.runs || sight.GPUs[i].MPS != d.MPS || (d.Token == d.UUID) != test.uuid {
					t.Errorf("%+v, seen with %q", d, sight.GPUs[i].MPS)
				}
			}
		})
	}
}
