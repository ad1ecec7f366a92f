// Package protocol is what both ends of the connection with a kernel process share: the handshake,
// the private socket, and the memory in which records and results lie while messages carry offsets.
package protocol

import (
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Version is the version of kernel.proto. It increases when old kernels would no
// longer work with new workers, or vice versa.
const Version = 1

const (
	// maxMessage limits a gRPC message on both sides. gRPC's default of 4 MiB is smaller
	// than a batch of long records; protobuf cannot exceed 2 GiB.
	MaxMessage = 1 << 30
	// windowBytes lets a whole batch be sent without waiting for flow-control credit.
	windowBytes = 16 << 20
	PluginName  = "kernel"
)

// serverOptions and dialOptions apply to every connection with a kernel.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.Creds(newLocalSocket()),
	}
}

func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithTransportCredentials(newLocalSocket()),
	}
}

// handshake prevents users from starting a kernel by hand, and workers from talking to a
// program that is not a kernel. It is not a secret.
var Handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  Version,
	MagicCookieKey:   "GPURUN_KERNEL",
	MagicCookieValue: "4d9a61c0-3c8f-4a57-9f0e-6b1b7f0d2a58",
}
