package commit

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
)

// Entry is one line of a journal. Exactly one member is set.
type Entry struct {
	// Segment: a part is closed and complete.
	Segment *chunk.Segment `json:"segment,omitempty"`
	// Drop: a part was missing or damaged; its records are computed again.
	Drop *Drop `json:"drop,omitempty"`
	// Encoded: segments were encoded and appended to the output.
	Encoded *Encoded `json:"encoded,omitempty"`
	// Durable: the output up to here is on disk.
	Durable *Durable `json:"durable,omitempty"`
	// Complete: everything is durable; only renaming the files remains.
	Complete *Durable `json:"complete,omitempty"`
}

// Drop revokes a segment.
type Drop struct {
	First int64  `json:"first"`
	Part  string `json:"part"`
}

// Encoded is the units that hold the results of the records First to Next. A later entry
// with the same First replaces it.
type Encoded struct {
	First int64  `json:"first"`
	Next  int64  `json:"next"`
	Units []Unit `json:"units"`
}

// Durable is how much of the output is on disk.
type Durable struct {
	// Next is the first record that is not in the output, Place its position in the input.
	Next  int64       `json:"next"`
	Place chunk.Place `json:"place"`
	// Sizes are the bytes of results, errors and failures: encoded, if they are.
	Sizes [chunk.PartFiles]int64 `json:"sizes"`
	// Tally counts the records in them.
	Tally chunk.Tally `json:"tally"`
}

func parseEntry(line []byte) (Entry, error) {
	var entry Entry
	payload, err := chunk.ParseLine(line)
	if err != nil {
		return entry, err
	}
	if err := json.Unmarshal(payload, &entry); err != nil {
		return entry, fmt.Errorf("invalid entry: %w", err)
	}
	members := 0
	for _, set := range []bool{entry.Segment != nil, entry.Drop != nil, entry.Encoded != nil, entry.Durable != nil, entry.Complete != nil} {
		if set {
			members++
		}
	}
	if members != 1 {
		return entry, fmt.Errorf("%d known entries on the line", members)
	}
	return entry, nil
}

// goodLines counts the lines that are intact, or that end with an intact line because the
// newline before it is missing. It stops at the first line that records that everything
// before it is on disk.
func goodLines(data []byte) (n int, durable bool) {
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, newline)
		for at := 0; whole && at < len(line); at++ {
			brace := bytes.Index(line[at:], []byte(" {"))
			if brace < 0 {
				break
			}
			at += brace
			if entry, err := parseEntry(line[max(0, at-8):]); err == nil {
				n++
				if entry.Durable != nil || entry.Complete != nil {
					return n, true
				}
				break
			}
		}
		data = rest
	}
	return n, false
}
