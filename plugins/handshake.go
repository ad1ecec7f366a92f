package plugins

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// ProtocolVersion is the version of kernel.proto. It increases when old kernels would no
// longer work with new workers, or vice versa.
const ProtocolVersion = 1

const (
	// maxMessage limits a gRPC message on both sides. gRPC's default of 4 MiB is smaller
	// than a batch of long records; protobuf cannot exceed 2 GiB.
	maxMessage = 1 << 30
	// windowBytes lets a whole batch be sent without waiting for flow-control credit.
	windowBytes = 16 << 20
	pluginName  = "kernel"
)

// serverOptions and dialOptions apply to every connection with a kernel.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.Creds(newLocalSocket()),
	}
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithTransportCredentials(newLocalSocket()),
	}
}

// handshake prevents users from starting a kernel by hand, and workers from talking to a
// program that is not a kernel. It is not a secret.
var handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "GPURUN_KERNEL",
	MagicCookieValue: "4d9a61c0-3c8f-4a57-9f0e-6b1b7f0d2a58",
}

// grpcPlugin connects both ends of the protocol to go-plugin.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	kernel Kernel // plugin side only
	arena  *arena // plugin side only; may be nil
}

// GRPCServer registers the author's kernel in the kernel process.
func (p *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	kernelpb.RegisterKernelServer(s, newServer(p.kernel, p.arena))
	return nil
}

// GRPCClient makes the worker's proxy.
func (p *grpcPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return newClient(kernelpb.NewKernelClient(conn)), nil
}
