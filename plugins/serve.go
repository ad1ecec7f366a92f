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
	proc.IgnoreStopSignals()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{pluginName: &grpcPlugin{kernel: k}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options,
				grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
				grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes))...)
		},
		Logger: hclog.NewNullLogger(), // it would log its own steps to stderr
	})
}
