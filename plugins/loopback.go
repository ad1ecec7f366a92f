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
	host, kernel := pairedArenas(smallArenaSize)
	client, disconnect := loopback(k, host, kernel)
	return client, func() {
		disconnect()
		// The kernel's end stays mapped: k may still look at a batch.
		host.close()
	}
}

// loopback connects both ends, with an arena or, where both are nil, inline.
func loopback(k Kernel, host, kernel *arena) (proxy *client, end func()) {
	listener := bufconn.Listen(loopbackBuffer)
	server := grpc.NewServer(serverOptions()...)
	kernelpb.RegisterKernelServer(server, newServer(k, kernel))
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
	proxy = newClient(kernelpb.NewKernelClient(connection))
	proxy.arena = host
	return proxy, func() {
		_ = connection.Close()
		server.Stop()
		<-served
	}
}
