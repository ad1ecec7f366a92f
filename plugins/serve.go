package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// Serve is the main function of a kernel program: it serves k to the worker that started
// the process, and returns when the worker no longer needs it. If the program was not
// started by gpurun, Serve prints a message and exits with status 2.
func Serve(k Kernel) {
	if os.Getenv(protocol.Handshake.MagicCookieKey) != protocol.Handshake.MagicCookieValue {
		name := filepath.Base(os.Args[0])
		fmt.Fprintf(os.Stderr, "%s is a gpurun kernel and does not run by itself; use:\n  gpurun run -k ./%s in.jsonl -o out.jsonl\n", name, name)
		os.Exit(2)
	}
	proc.SurviveStopSignals()
	relaxGC()
	rawStderr = os.Stderr
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: protocol.Handshake,
		Plugins:         goplugin.PluginSet{protocol.PluginName: &served{kernel: k, arena: protocol.InheritArena()}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, protocol.ServerOptions()...)...)
		},
		Logger: hclog.NewNullLogger(), // go-plugin would log its steps to stderr
	})
}

// heapFloor is never touched, so it takes no physical memory, but the garbage collector
// counts it.
var heapFloor []byte

// relaxGC lets garbage grow to 32 MB before it is collected. A kernel has little else on
// its heap: the collector would run every 4 MB, which is a few batches, and take more
// time than the work itself. It makes no difference to a kernel with a large heap.
func relaxGC() {
	if heapFloor == nil {
		heapFloor = make([]byte, 32<<20)
	}
}

// rawStderr is the process's original standard error. go-plugin replaces it with a pipe
// that loses its last bytes when the process dies, and those explain the crash.
var rawStderr *os.File

// restoreStderr restores the original standard error and redirects standard output to
// it. The first call to the kernel calls it, when go-plugin's setup is complete.
func restoreStderr() {
	if rawStderr != nil {
		os.Stdout, os.Stderr = rawStderr, rawStderr
	}
}

// served connects the kernel's end of the protocol to go-plugin.
type served struct {
	goplugin.NetRPCUnsupportedPlugin
	kernel Kernel
	arena  *protocol.Arena // may be nil
}

func (p *served) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	Register(s, p.kernel, p.arena)
	return nil
}

func (p *served) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.ErrUnsupported
}

// Register makes a gRPC server serve a kernel. It is for callers of a kernel in their own
// process; the arena is nil if records and results are sent inline.
func Register(s *grpc.Server, k Kernel, a *protocol.Arena) {
	kernelpb.RegisterKernelServer(s, newServer(k, a))
}
