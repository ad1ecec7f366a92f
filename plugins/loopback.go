package plugins

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// loopbackBuffer is the size of the pipe between the two ends.
const loopbackBuffer = 1 << 20

// Loopback returns k as a worker sees it: the proxy, behind it the real gRPC
// protocol, behind that k, all in this process. It is for tests of a kernel. The
// kernel's life is the caller's, through the proxy; end frees the connection and
// must be called last.
func Loopback(k Kernel) (proxy Kernel, end func()) {
	listener := bufconn.Listen(loopbackBuffer)
	server := grpc.NewServer(serverOptions()...)
	kernelpb.RegisterKernelServer(server, newServer(k))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends with the server
	}()
	options := append(dialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	connection, err := grpc.NewClient("passthrough:loopback", options...)
	if err != nil {
		panic(err) // only for options that contradict each other
	}
	return newClient(kernelpb.NewKernelClient(connection)), func() {
		_ = connection.Close()
		server.Stop()
		<-served
	}
}
