package plugins_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kerneltest"
)

// oldest describes the first version of kernel.proto.
//
//go:embed kernelpb/testdata/kernel-1.binpb
var oldest []byte

func init() { plugins.AddProgram("older", serveOlder) }

// serveOlder serves a kernel that was built with the first version of the protocol: it has
// no arena, knows no later message, field or method, and its handshake is spelled out.
func serveOlder() {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(oldest, &set); err != nil {
		panic(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		panic(err)
	}
	service, err := files.FindDescriptorByName("gpurun.kernel.v1.Kernel")
	if err != nil {
		panic(err)
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "GPURUN_KERNEL", MagicCookieValue: "4d9a61c0-3c8f-4a57-9f0e-6b1b7f0d2a58"},
		Plugins:         goplugin.PluginSet{"kernel": &olderPlugin{service: service.(protoreflect.ServiceDescriptor)}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))...)
		},
		Logger: hclog.NewNullLogger(),
	})
}

// olderPlugin answers with dynamic messages of an older protocol.
type olderPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	service protoreflect.ServiceDescriptor
}

func (p *olderPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this side has no kernel")
}

func (p *olderPlugin) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	desc := &grpc.ServiceDesc{ServiceName: string(p.service.FullName()), HandlerType: (*any)(nil)}
	for i := range p.service.Methods().Len() {
		method := p.service.Methods().Get(i)
		if method.IsStreamingClient() {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{
				StreamName: string(method.Name()), ClientStreams: true, ServerStreams: true,
				Handler: func(_ any, stream grpc.ServerStream) error { return processOlder(method, stream) },
			})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: string(method.Name()), Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := decode(dynamicpb.NewMessage(method.Input())); err != nil {
				return nil, err
			}
			reply := dynamicpb.NewMessage(method.Output())
			if method.Name() == "Describe" {
				info := reply.Mutable(member(reply, "info")).Message()
				info.Set(member(info, "name"), protoreflect.ValueOfString("older"))
				info.Set(member(info, "batch_size"), protoreflect.ValueOfUint32(16))
				info.Set(member(info, "in_flight"), protoreflect.ValueOfUint32(2))
			}
			return reply, nil
		}})
	}
	server.RegisterService(desc, nil)
	return nil
}

func member(message protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return message.Descriptor().Fields().ByName(name)
}

// processOlder adds the member "bytes" to every object, leaves other records alone, and
// rejects those that contain "reject".
func processOlder(method protoreflect.MethodDescriptor, stream grpc.ServerStream) error {
	for {
		request, reply := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		reply.Set(member(reply, "sequence"), request.Get(member(request, "sequence")))
		block := request.Get(member(request, "records")).Message()
		data, lengths := block.Get(member(block, "inline")).Bytes(), block.Get(member(block, "lengths")).List()
		var verdicts, sizes []byte
		messages := reply.Mutable(member(reply, "messages")).List()
		for i := range lengths.Len() {
			length := lengths.Get(i).Uint()
			record := data[:length]
			data = data[length:]
			verdict := byte(1) // unchanged
			switch {
			case bytes.Contains(record, []byte("reject")):
				verdict = 5
				messages.Append(protoreflect.ValueOfString("rejected by an older kernel"))
			case bytes.HasPrefix(bytes.TrimSpace(record), []byte("{")):
				verdict = 3 // columns
			}
			verdicts = append(verdicts, verdict)
			sizes = binary.LittleEndian.AppendUint64(sizes, length)
		}
		reply.Set(member(reply, "verdicts"), protoreflect.ValueOfBytes(verdicts))
		column := reply.Mutable(member(reply, "columns")).List().AppendMutable().Message()
		column.Set(member(column, "name"), protoreflect.ValueOfString("bytes"))
		column.Set(member(column, "int64s"), protoreflect.ValueOfBytes(sizes))
		if err := stream.SendMsg(reply); err != nil {
			return err
		}
	}
}

// TestOlderKernel: a kernel built with the first version of the protocol passes every check.
func TestOlderKernel(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := plugins.Command{Path: path, Env: append(os.Environ(), "GPURUN_TEST_KERNEL=older")}
	kerneltest.RunBinary(t, command, kerneltest.Options{})

	process, err := plugins.Start(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Kill()
	info, err := process.Describe(t.Context(), nil)
	if err != nil || info.Name != "older" || info.BatchSize != 16 || info.Concurrency != 0 || info.ReadsFetched || len(info.Inputs) > 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := process.Open(t.Context(), plugins.Device{Name: "CPU 0", Threads: 1}, nil); err != nil {
		t.Fatal(err)
	}
	records := [][]byte{[]byte(`{"a":1}`), []byte(`"reject"`), []byte(`3`)}
	results, err := plugins.Call(t.Context(), process, plugins.NewBatch(records))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"a":1,"bytes":7}`, "", `3`} {
		lines, err := plugins.ResultLines(records[i], results, i)
		if failed := results.At(i).Message; want == "" {
			if failed != "rejected by an older kernel" {
				t.Errorf("record %d: %q", i, failed)
			}
		} else if err != nil || len(lines) != 1 || string(lines[0]) != want {
			t.Errorf("record %d: %q, %v", i, lines, err)
		}
	}
}
