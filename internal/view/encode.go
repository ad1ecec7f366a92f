package view

import (
	"encoding/json"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// EventsVersion is the version of the schema of events. Events gain members without a new version;
// a member that is removed, or whose meaning changes, needs one.
const EventsVersion = 1

// EncodeEvent returns an event as JSON: {"event":"chunk_done","time":…,"v":1, …}; nil if it
// cannot be encoded.
func EncodeEvent(event orchestrator.Event, at time.Time) []byte {
	head, err := json.Marshal(struct {
		Event   string    `json:"event"`
		Time    time.Time `json:"time"`
		Version int       `json:"v"`
	}{event.EventName(), at, EventsVersion})
	if err != nil {
		return nil
	}
	body, err := json.Marshal(event)
	if err != nil {
		return nil
	}
	if len(body) <= len("{}") {
		return head
	}
	// Both are objects: append the members of the second to the first.
	return append(append(head[:len(head)-1], ','), body[1:]...)
}
