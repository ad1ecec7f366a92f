package protocol

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// quietPair returns both ends of a socket, as a worker and its kernel have them.
func quietPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if client, _, err = newLocalSocket().ClientHandshake(t.Context(), "", dialled); err != nil {
		t.Fatal(err)
	}
	if server, _, err = newLocalSocket().ServerHandshake(accepted); err != nil {
		t.Fatal(err)
	}
	for _, end := range []net.Conn{client, server} {
		if _, ok := end.(*quietConn); !ok {
			t.Fatalf("an end is a %T", end)
		}
		t.Cleanup(func() { end.Close() })
	}
	return client, server
}

// TestQuietConnMovesEverything sends far more than the socket's buffer holds, so that both
// sides must wait for each other, and then closes it.
func TestQuietConnMovesEverything(t *testing.T) {
	client, server := quietPair(t)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i >> 10)
	}
	wrote := make(chan error, 1)
	go func() {
		n, err := client.Write(sent)
		if n != len(sent) {
			err = errors.Join(err, io.ErrShortWrite)
		}
		wrote <- errors.Join(err, client.Close())
	}()
	time.Sleep(10 * time.Millisecond) // until it is full
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d arrived: %v", len(got), len(sent), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestQuietConnEnds(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		client, _ := quietPair(t)
		if err := client.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
	t.Run("closed while it waits", func(t *testing.T) {
		client, _ := quietPair(t)
		failed := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			failed <- err
		}()
		time.Sleep(time.Millisecond)
		client.Close()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	})
	t.Run("peer closed", func(t *testing.T) {
		client, server := quietPair(t)
		server.Close()
		if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read: %v", err)
		}
		if n, err := client.Read(nil); n != 0 || err != nil {
			t.Errorf("read of nothing: %d, %v", n, err)
		}
	})
}
