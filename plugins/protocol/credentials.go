package protocol

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// localSocket is insecure credentials: the socket is private. gRPC allows the connection
// to be replaced in the handshake of its credentials, on both sides.
type localSocket struct {
	credentials.TransportCredentials
}

func newLocalSocket() localSocket { return localSocket{insecure.NewCredentials()} }

func (s localSocket) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.TransportCredentials.ClientHandshake(ctx, authority, quiet(conn))
}

func (s localSocket) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.TransportCredentials.ServerHandshake(quiet(conn))
}

func (s localSocket) Clone() credentials.TransportCredentials { return s }
