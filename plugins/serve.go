package plugins

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/internal/proc"
)

// Serve is the whole main of a kernel program: it serves k to the worker that
// started the process and returns when the worker is done with it.
func Serve(k Kernel) {
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		name := filepath.Base(os.Args[0])
		fmt.Fprintf(os.Stderr, "%s is a gpurun kernel; gpurun starts it:\n  gpurun run -k ./%s in.jsonl -o out.jsonl\n", name, name)
		os.Exit(2)
	}
	proc.SurviveStopSignals()
	collectLessOften()
	rawStderr = os.Stderr
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{pluginName: &grpcPlugin{kernel: k, arena: inheritArena()}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, serverOptions()...)...)
		},
		Logger: hclog.NewNullLogger(), // it would log its own steps to stderr
	})
}

// heapFloor is memory that nobody touches, so that it is none, but that the garbage
// collector counts.
var heapFloor []byte

// collectLessOften lets garbage grow to 32 MB before it is collected. A kernel has
// little else on its heap: the collector would run at every 4 MB, which is a few
// batches, and take more time than the work. One with a large heap goes on as it did.
func collectLessOften() {
	if heapFloor == nil {
		heapFloor = make([]byte, 32<<20)
	}
}

// rawStderr is the process's own standard error. go-plugin puts a pipe in its
// place, whose last bytes are lost when the process dies: the last words.
var rawStderr *os.File

// speakPlainly gives the kernel its standard error back, for its output too.
// It is called from the first call to the kernel, when go-plugin is done.
func speakPlainly() {
	if rawStderr != nil {
		os.Stdout, os.Stderr = rawStderr, rawStderr
	}
}
