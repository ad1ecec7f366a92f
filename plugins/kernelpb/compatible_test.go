package kernelpb

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestOnlyGains: the protocol still has every message, field and method of its first
// version, unchanged on the wire. Otherwise plugins.ProtocolVersion must increase.
func TestOnlyGains(t *testing.T) {
	data, err := os.ReadFile("testdata/kernel-1.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	files.RangeFiles(func(before protoreflect.FileDescriptor) bool {
		for i := range before.Messages().Len() {
			compareMessages(t, before.Messages().Get(i), File_kernel_proto.Messages().ByName(before.Messages().Get(i).Name()))
		}
		methods := before.Services().ByName("Kernel").Methods()
		for i := range methods.Len() {
			compareMethods(t, methods.Get(i), File_kernel_proto.Services().ByName("Kernel").Methods().ByName(methods.Get(i).Name()))
		}
		return true
	})
}

func compareMessages(t *testing.T, before, after protoreflect.MessageDescriptor) {
	t.Helper()
	if after == nil {
		t.Errorf("%s is gone", before.FullName())
		return
	}
	for i := range before.Fields().Len() {
		old := before.Fields().Get(i)
		field := after.Fields().ByNumber(old.Number())
		switch {
		case field == nil:
			t.Errorf("%s: field %d is gone", old.FullName(), old.Number())
		case field.Name() != old.Name() || field.Kind() != old.Kind() || field.Cardinality() != old.Cardinality():
			t.Errorf("%s: field %d is now %s %s %s", old.FullName(), old.Number(), field.Cardinality(), field.Kind(), field.Name())
		case field.Message() != nil && field.Message().FullName() != old.Message().FullName():
			t.Errorf("%s is now a %s", old.FullName(), field.Message().FullName())
		}
	}
}

func compareMethods(t *testing.T, before, after protoreflect.MethodDescriptor) {
	t.Helper()
	if after == nil || after.Input().FullName() != before.Input().FullName() || after.Output().FullName() != before.Output().FullName() ||
		after.IsStreamingClient() != before.IsStreamingClient() || after.IsStreamingServer() != before.IsStreamingServer() {
		t.Errorf("%s is gone, or takes and returns something else", before.FullName())
	}
}
