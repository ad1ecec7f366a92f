package commit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpurun/gpurun/chunk"
)

// Entry is one line of a journal. Exactly one member is set.
type Entry struct {
	// Segment: a part is closed and complete.
	Segment *chunk.Segment `json:"segment,omitempty"`
	// Drop: a part was missing or damaged; its records are computed again.
	Drop *Drop `json:"drop,omitempty"`
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

// Durable is how much of the output is on disk.
type Durable struct {
	// Next is the first record that is not in the output, Place its position in the input.
	Next  int64       `json:"next"`
	Place chunk.Place `json:"place"`
	// Sizes are the bytes of results, errors and failures.
	Sizes [chunk.PartFiles]int64 `json:"sizes"`
	// Tally counts the records in them.
	Tally chunk.Tally `json:"tally"`
}

var errCut = errors.New("truncated line")

func parseEntry(line []byte) (Entry, error) {
	var entry Entry
	sum, payload, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(sum) != 8 {
		return entry, errCut
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || string(sum) != fmt.Sprintf("%08x", want) {
		return entry, errors.New("invalid checksum")
	}
	if chunk.Checksum(payload) != chunk.CRC(want) {
		return entry, errors.New("checksum mismatch")
	}
	if err := json.Unmarshal(payload, &entry); err != nil {
		return entry, fmt.Errorf("invalid entry: %w", err)
	}
	switch entry.members() {
	case 0:
		return entry, errors.New("unknown entry")
	case 1:
		return entry, nil
	}
	return entry, errors.New("more than one entry on the line")
}

func (e Entry) members() (n int) {
	for _, set := range []bool{e.Segment != nil, e.Drop != nil, e.Durable != nil, e.Complete != nil} {
		if set {
			n++
		}
	}
	return n
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

func (e Entry) line() ([]byte, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode journal entry: %w", err)
	}
	return fmt.Appendf(nil, "%s %s\n", chunk.Checksum(payload), payload), nil
}
