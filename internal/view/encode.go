package view

import (
	"encoding/json"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// EncodeEvent returns an event as JSON: {"event":"chunk_done","time":…, …}; nil if it
// cannot be encoded.
func EncodeEvent(event orchestrator.Event, at time.Time) []byte {
	head, err := json.Marshal(struct {
		Event string    `json:"event"`
		Time  time.Time `json:"time"`
	}{event.EventName(), at})
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
