package process

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// loopbackBuffer is the buffer size of the connection.
const loopbackBuffer = 1 << 20

// Loopback returns a proxy that calls k through the real gRPC protocol, as a worker does,
// but within this process and without shared memory. It is for tests of a kernel, and for
// trying one out. The caller opens and closes the kernel through the proxy. end frees the
// connection; the caller must call it last.
func Loopback(k plugins.Kernel) (proxy plugins.Kernel, end func()) { return loopback(k, nil, nil) }

// loopback connects both ends through an arena or, if both are nil, inline.
func loopback(k plugins.Kernel, host, kernel *protocol.Arena) (proxy *client, end func()) {
	listener := bufconn.Listen(loopbackBuffer)
	server := grpc.NewServer(protocol.ServerOptions()...)
	plugins.Register(server, k, kernel)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // returns when the server stops
	}()
	options := append(protocol.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	connection, err := grpc.NewClient("passthrough:loopback", options...)
	if err != nil {
		panic(err) // only for contradictory options
	}
	proxy = newClient(kernelpb.NewKernelClient(connection))
	proxy.arena = host
	return proxy, func() {
		_ = connection.Close()
		server.Stop()
		<-served
	}
}
