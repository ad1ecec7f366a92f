package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// programs are kernels, and other programs, that misbehave. Each runs as a separate
// process of the test binary.
var programs = map[string]func(){
	"good":  func() { plugins.Serve(misbehaving{}) },
	"exit0": func() {},
	"exit3": func() {
		fmt.Fprintln(os.Stderr, "some warning")
		fmt.Fprintln(os.Stderr, "cannot find libcuda.so.1")
		os.Exit(3)
	},
	"panics at start": func() { panic("no model folder") },
	"noise": func() {
		fmt.Println("a library's banner")
		fmt.Println("1|2|3 is no handshake")
		plugins.Serve(misbehaving{})
	},
	"noise without end": func() {
		fmt.Print("loading 51")
		plugins.Serve(misbehaving{})
	},
	"long line": func() {
		raw(strings.Repeat("x", 200<<10) + "\n")
		plugins.Serve(misbehaving{})
	},
	"flood": func() {
		line := []byte(strings.Repeat("y", 4000) + "\n")
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(1)
			}
		}
	},
	"sleeps": func() {
		fmt.Fprintln(os.Stderr, "waiting for a licence")
		time.Sleep(time.Hour)
	},
	"version 99": func() {
		fmt.Println("1|99|unix|/tmp/nobody|grpc|")
		time.Sleep(time.Hour)
	},
	"no socket": func() {
		fmt.Println("1|1|unix|/tmp/gpurun-test-nobody-listens|grpc|")
		time.Sleep(time.Hour)
	},
	"ends after handshake": func() {
		fmt.Println("1|1|unix|/tmp/gpurun-test-nobody-listens|grpc|")
		os.Exit(4)
	},
	"stopped at start": stop,
	"stopped after handshake": func() {
		path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "socket")
		if _, err := net.Listen("unix", path); err != nil {
			panic(err)
		}
		fmt.Printf("1|1|unix|%s|grpc|\n", path)
		stop()
	},
	"stays": func() {
		plugins.Serve(misbehaving{})
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	},
	"too few":       func() { serveRaw(rawServer{verdicts: []byte{1, 1}}) },
	"too many":      func() { serveRaw(rawServer{verdicts: []byte{1, 1, 1, 1}}) },
	"unasked":       func() { serveRaw(rawServer{verdicts: []byte{1, 1, 1}, offset: 7}) },
	"ends stream":   func() { serveRaw(rawServer{}) },
	"breaks stream": func() { serveRaw(rawServer{err: errors.New("out of ideas")}) },
}

// raw writes to descriptor 1, past go-plugin, as a C library does.
func raw(text string) {
	data := []byte(text)
	for len(data) > 0 {
		n, err := syscall.Write(1, data)
		if err != nil {
			return
		}
		data = data[n:]
	}
}

// stop does not return: the signal may need a moment to reach every thread.
func stop() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(time.Hour)
}

// misbehaving does what the record, or the configuration, says.
type misbehaving struct{}

func (misbehaving) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	switch string(config) {
	case `"describe: hang"`:
		time.Sleep(time.Hour)
	case `"describe: panic"`:
		panic("what am I?")
	}
	return plugins.Info{Name: "misbehaving"}, nil
}

func (misbehaving) Open(_ context.Context, _ plugins.Device, config plugins.Config) error {
	switch string(config) {
	case `"open: crash"`:
		fmt.Fprintln(os.Stderr, "the model file is damaged")
		os.Exit(9)
	case `"open: hang"`:
		time.Sleep(time.Hour)
	}
	return nil
}

func (m misbehaving) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		if string(batch.Record(i)) == `"illegal access"` {
			return errors.New("CUDA error: an illegal memory access was encountered")
		}
		m.do(i, string(batch.Record(i)), results)
	}
	return nil
}

func (misbehaving) do(i int, record string, results *plugins.Results) {
	switch strings.Trim(record, `"`) {
	case "panic":
		panic("index out of luck")
	case "exit 7":
		fmt.Fprintln(os.Stderr, "these are my last words")
		os.Exit(7)
	case "exit 7 to stdout":
		fmt.Println("these are my last words")
		os.Exit(7)
	case "segv":
		// The runtime catches the signal: a shell in its place does not.
		_ = syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, os.Environ())
	case "stop":
		stop()
	case "hang":
		time.Sleep(time.Hour)
	case "long line":
		raw(strings.Repeat("z", 200<<10) + "\nend of the long line\n")
	case "print a lot":
		chunk := bytes.Repeat([]byte("0123456789abcdef\n"), 4096)
		for range 10 {
			_, _ = os.Stderr.Write(chunk)
			_, _ = os.Stdout.Write(chunk)
		}
	case "5 MiB":
		results.Line(i, bytes.Repeat([]byte("5"), 5<<20))
		return
	case "40 MiB":
		results.Line(i, bytes.Repeat([]byte("4"), 40<<20))
		return
	case "terminate":
		child := exec.Command("sleep", "1000")
		err := child.Start()
		if err == nil {
			_ = child.Process.Signal(syscall.SIGTERM)
			err = child.Wait()
		}
		results.Line(i, fmt.Appendf(nil, "%q", err))
		return
	case "children":
		results.Line(i, startChildren())
		return
	}
	results.Unchanged(i)
}

// startChildren starts two processes that hold descriptors 1 and 2 open, one of them in
// its own session, and returns their PIDs.
func startChildren() []byte {
	var pids []byte
	for _, setsid := range []bool{false, true} {
		child := exec.Command("sleep", "1000")
		child.Stdout, child.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		if err := child.Start(); err != nil {
			panic(err)
		}
		pids = fmt.Appendf(pids, "%d ", child.Process.Pid)
	}
	return pids
}

func (misbehaving) Close() error {
	switch os.Getenv("GPURUN_TEST_CLOSE") {
	case "hang":
		time.Sleep(time.Hour)
	case "error":
		return errors.New("the cache was not saved")
	case "exit":
		os.Exit(5)
	}
	return nil
}

// rawServer answers without package plugins, as a kernel in another language might.
type rawServer struct {
	kernelpb.UnimplementedKernelServer
	verdicts []byte
	offset   uint64
	err      error
}

func (rawServer) Describe(context.Context, *kernelpb.DescribeRequest) (*kernelpb.DescribeReply, error) {
	return &kernelpb.DescribeReply{}, nil
}

func (rawServer) Close(context.Context, *kernelpb.CloseRequest) (*kernelpb.CloseReply, error) {
	return &kernelpb.CloseReply{}, nil
}

func (s rawServer) Process(stream kernelpb.Kernel_ProcessServer) error {
	for {
		request, err := stream.Recv()
		if err != nil || s.verdicts == nil {
			return s.err
		}
		reply := &kernelpb.ProcessReply{Sequence: request.GetSequence() + s.offset, Verdicts: s.verdicts}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

func serveRaw(server kernelpb.KernelServer) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: protocol.Handshake,
		Plugins:         goplugin.PluginSet{protocol.PluginName: &rawPlugin{server: server}},
		GRPCServer:      goplugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}

type rawPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server kernelpb.KernelServer
}

func (p *rawPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	kernelpb.RegisterKernelServer(s, p.server)
	return nil
}

func (p *rawPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.ErrUnsupported
}
