package plugins

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// ProtocolVersion is the version of kernel.proto. It is raised when an old
// kernel could not live with a new worker, or the other way round.
const ProtocolVersion = 1

const (
	// maxMessage is the limit of one gRPC message on both sides. gRPC's own
	// default of 4 MiB is smaller than a batch of long records; protobuf ends
	// at 2 GiB.
	maxMessage = 1 << 30
	// windowBytes lets a whole batch travel without waiting for credit.
	windowBytes = 16 << 20
	pluginName  = "kernel"
)

// serverOptions and dialOptions are those of every connection with a kernel.
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

// handshake keeps a person from starting a kernel by hand and a worker from
// talking to a program that is none; it is no secret.
var handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "GPURUN_KERNEL",
	MagicCookieValue: "4d9a61c0-3c8f-4a57-9f0e-6b1b7f0d2a58",
}

// grpcPlugin ties both ends of the wire to go-plugin.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	kernel Kernel // plugin side only
	arena  *arena // plugin side only; may be nil
}

var errOtherSide = errors.New("this side has no kernel")

// GRPCServer registers the author's kernel in the kernel process.
func (p *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if p.kernel == nil {
		return errOtherSide
	}
	kernelpb.RegisterKernelServer(s, newServer(p.kernel, p.arena))
	return nil
}

// GRPCClient makes the worker's proxy.
func (p *grpcPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return newClient(kernelpb.NewKernelClient(conn)), nil
}
