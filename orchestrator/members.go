package orchestrator

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
)

const (
	// sampledRecords is how many of the first records are searched for the members that the
	// kernel needs, in at most sampledBytes.
	sampledRecords = 100
	sampledBytes   = 4 << 20
)

// checkMembers rejects a kernel that needs a member which none of the first records has:
// probably its name is misspelled. It reads only an input that is one plain file.
func (p *prepared) checkMembers() error {
	if !p.plan.Info.NeedsInputs || p.input == nil {
		return nil
	}
	seen, records := sampleMembers(io.NewSectionReader(p.input.file, 0, sampledBytes))
	for _, name := range p.plan.Info.Inputs {
		if records == 0 || slices.Contains(seen, name) {
			continue
		}
		hint := "they have " + strings.Join(seen[:min(len(seen), 20)], ", ")
		if near := nearest.Of(name, seen, 3); near != "" {
			hint = "did you mean " + near + "?"
		}
		return fault.New(fault.Usage, "the first records (%d) have no member %q, which the kernel needs; %s", records, name, hint).Set("kernel-config")
	}
	return nil
}

// sampleMembers returns the members of the first records, and how many records those are.
func sampleMembers(r io.Reader) (names []string, records int) {
	lines := bufio.NewReader(r)
	for range sampledRecords {
		line, err := lines.ReadBytes('\n')
		if err != nil { // the end, or a record that is too long
			line = nil
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(line, &members) == nil && members[errorMember] == nil {
			records++
			found := make([]string, 0, len(members))
			for name := range members {
				if !slices.Contains(names, name) {
					found = append(found, name)
				}
			}
			slices.Sort(found)
			names = append(names, found...)
		}
		if err != nil {
			break
		}
	}
	return names, records
}
