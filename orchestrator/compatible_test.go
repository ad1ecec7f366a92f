package orchestrator_test

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/published"
	"github.com/gpurun/gpurun/orchestrator"
)

// everyEvent has one value of each type.
var everyEvent = []orchestrator.Event{
	orchestrator.Planned{}, orchestrator.Resuming{}, orchestrator.WorkerStarted{}, orchestrator.WorkerReady{}, orchestrator.WorkerLost{},
	orchestrator.WorkerLeft{}, orchestrator.WorkersScaled{}, orchestrator.ChunkStarted{}, orchestrator.Progress{}, orchestrator.ChunkDone{},
	orchestrator.ChunkGivenUp{}, orchestrator.Notice{}, orchestrator.Paused{}, orchestrator.Resumed{}, orchestrator.Stopping{},
	orchestrator.Finished{}, orchestrator.DeviceSample{}, orchestrator.DeviceEvent{Kind: "device_event"},
}

// TestEventsKeepTheirMembers: members of events and reports keep their names and types.
//
//	GPURUN_UPDATE=1 go test -run TestEventsKeepTheirMembers ./orchestrator
func TestEventsKeepTheirMembers(t *testing.T) {
	now := make(map[string]bool)
	for _, event := range everyEvent {
		shape(now, event.EventName(), reflect.TypeOf(event), 0)
	}
	shape(now, "report", reflect.TypeFor[orchestrator.Report](), 0)
	published.Check(t, "testdata/events-1.txt", now)
}

// shape adds the members that a type has in JSON.
func shape(lines map[string]bool, at string, of reflect.Type, depth int) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	add := func(kind string) { lines[at+" "+kind] = true }
	switch {
	case depth > 6: // a type that contains itself
	case of == reflect.TypeFor[json.RawMessage]():
		add("any")
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()), reflect.PointerTo(of).Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		add("string")
	case of.Implements(reflect.TypeFor[json.Marshaler]()), reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()):
		add("encoded")
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-" || !field.IsExported() && !field.Anonymous:
			case name == "" && field.Anonymous:
				shape(lines, at, field.Type, depth)
			case name == "":
				shape(lines, at+"."+field.Name, field.Type, depth+1)
			default:
				shape(lines, at+"."+name, field.Type, depth+1)
			}
		}
	case of.Kind() == reflect.Slice, of.Kind() == reflect.Array:
		shape(lines, at+"[]", of.Elem(), depth+1)
	case of.Kind() == reflect.Map:
		shape(lines, at+".*", of.Elem(), depth+1)
	case of.Kind() == reflect.Bool:
		add("boolean")
	case of.Kind() == reflect.String:
		add("string")
	case of.Kind() == reflect.Float32, of.Kind() == reflect.Float64:
		add("number")
	case of.Kind() == reflect.Interface:
		add("any")
	default:
		add("integer")
	}
}
