package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const (
	// sampledRecords is how many of the first records of a file are searched for the members
	// that the job needs, in about sampledBytes.
	sampledRecords = 100
	sampledBytes   = 4 << 20
	// sampledFiles is how many of the first files are searched.
	sampledFiles = 16
)

// members compares the members that the job needs with the members of the first records.
type members struct {
	config *order
	plan   *Plan
	first  atomic.Pointer[sample] // of a stream, once it is read
}

// needs returns the members without which a record fails.
func (m *members) needs() []string {
	names := slices.Clone(m.config.Results.Unique)
	if m.plan.Info.NeedsInputs {
		names = append(names, m.reads()...)
	}
	return names
}

// reads returns the members that the kernel is known to read. A file that the job fetches, and a
// column of bytes, is no member.
func (m *members) reads() []string {
	beside := m.config.inputs.Bytes()
	return slices.DeleteFunc(slices.Clone(m.plan.Info.Inputs), func(name string) bool {
		return slices.Contains(beside, name) || slices.ContainsFunc(m.config.Fetch.Members, func(f FetchMember) bool { return f.Name == name })
	})
}

// check rejects a job that needs a member which none of the first records has:
// probably its name is misspelled. A file without it, among others that have it, is noted.
// Streams, which may have what the files lack, are checked when their first chunk is cut.
func (m *members) check(ctx context.Context) error {
	needs, results := m.needs(), m.config.Results
	if len(needs)+len(results.Asked)+len(results.Named)+len(m.plan.GroupBy) == 0 || m.config.inputs.Streams() {
		return nil
	}
	var notes []string
	all := m.sampleFiles(ctx, func(file string, s sample) {
		for _, name := range needs {
			if s.lacks(name) != nil {
				notes = append(notes, fmt.Sprintf("%s no member %q, which the kernel needs; records without it fail", s.have(" of "+file), name))
			}
		}
	})
	for _, name := range needs {
		if e := all.lacks(name); e != nil {
			return e
		}
	}
	// Members to keep that none of the first records has: later ones may. A column of the output
	// may also be the kernel's, unless it looks misspelled.
	for _, name := range results.Asked {
		if all.misses(name) {
			m.plan.note(fmt.Sprintf("%s no member %q to keep%s", all.have(""), name, all.instead(name)))
		}
	}
	for _, name := range results.Named {
		if near := nearest.Of(name, all.members, 3); all.misses(name) && near != "" && !slices.Contains(results.Named, near) {
			m.plan.note(fmt.Sprintf("%s no column %q%s", all.have(""), name, all.instead(name)))
		}
	}
	if text := m.ungrouped(all); text != "" {
		m.plan.note(text)
	}
	m.plan.note(notes...)
	return nil
}

// ungrouped warns that none of the first records has the member to group by, which saves no
// padding then; "" if one has. Later records may have it.
func (m *members) ungrouped(all *sample) string {
	name := m.plan.GroupBy
	if name == "" || !all.misses(name) {
		return ""
	}
	return fmt.Sprintf("%s no member %q to group by: their batches are in input order%s", all.have(""), name, all.instead(name))
}

// lacks describes the first member that the kernel reads and none of the first records has,
// for the message of a job whose records all fail; "" if there is none.
func (m *members) lacks() string {
	all := m.first.Load()
	if all == nil {
		all = m.sampleFiles(context.Background(), func(string, sample) {})
	}
	for _, name := range m.reads() {
		if !all.misses(name) {
			continue
		}
		return fmt.Sprintf("; the kernel reads %q, and %s %s%s", name, all.have(""), all.list(), nearest.Hint(name, all.members, 3, ""))
	}
	return ""
}

// checkFirst checks the first chunk of a stream as check does files.
func (m *members) checkFirst(c chunk.Chunk) error {
	if len(m.reads())+len(m.config.Results.Unique)+len(m.plan.GroupBy) == 0 || !m.config.inputs.Streams() {
		return nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil //nolint:nilerr // a worker reports it
	}
	defer file.Close()
	var s sample
	_ = source.EachLine(io.NewSectionReader(file, c.Offset, c.Length), sampledBytes, s.add)
	m.first.Store(&s)
	if text := m.ungrouped(&s); text != "" {
		m.config.emit(Notice{Text: text})
	}
	for _, name := range m.needs() {
		if e := s.lacks(name); e != nil {
			return e
		}
	}
	return nil
}

// sampleFiles reads the first records of files, and calls each with those of one. What cannot be
// read is reported when the job reads it.
func (m *members) sampleFiles(ctx context.Context, each func(file string, s sample)) *sample {
	var all sample
	beside := m.config.inputs.Bytes() // there, if not in the lines
	for _, file := range m.config.inputs.Files[:min(len(m.config.inputs.Files), sampledFiles)] {
		var s sample
		if !file.Stream() {
			_ = file.Each(ctx, format.Options{Columns: m.config.Input.Columns, Bytes: &format.Bytes{Names: beside}, Threads: 1}, sampledBytes, func(line record.Line) bool {
				_ = all.add(record.Line{Data: line.Data})
				return s.add(line)
			})
		}
		each(file.Name, s)
	}
	if all.records > 0 {
		all.members = append(all.members, beside...)
	}
	return &all
}

// sample is what the first records of an input have.
type sample struct {
	members []string
	records int
	read    int // bytes
	// text is the member to ask a model about: the one with the most words, or the most bytes
	// where words are not separated.
	text         string
	words, bytes int
}

// add adds a line, unless the kernel never sees it. It reports whether the first lines of a file
// go on.
func (s *sample) add(line record.Line) (more bool) {
	s.read += len(line.Data)
	more = line.Line == 0 || line.Line < sampledRecords && s.read < sampledBytes
	var members map[string]json.RawMessage
	if !utf8.Valid(line.Data) || json.Unmarshal(line.Data, &members) != nil || members == nil {
		return more
	}
	if mark := members[errorMember]; mark != nil && string(mark) != "null" { // it has failed before
		return more
	}
	s.records++
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(s.members, name) {
			s.members = append(s.members, name)
		}
		var text string
		if json.Unmarshal(members[name], &text) != nil || strings.ContainsAny(name, unquoted) {
			continue
		}
		if words := len(strings.Fields(text)); cmp.Or(cmp.Compare(words, s.words), cmp.Compare(len(text), s.bytes)) > 0 {
			s.text, s.words, s.bytes = name, words, len(text)
		}
	}
	return more
}

// misses reports whether there are records, and none has the member.
func (s sample) misses(name string) bool {
	return s.records > 0 && !slices.Contains(s.members, name)
}

// lacks returns an error if there are records, and none has the member.
func (s sample) lacks(name string) error {
	switch {
	case !s.misses(name):
		return nil
	case name == spec.CustomID:
		return fault.NoRequests.New("%s no custom_id: the input is not a batch file", s.have("")).Set(cmp.Or(s.text, "text"))
	}
	return fault.KernelUnsuited.New("%s no member %q, which the kernel needs%s", s.have(""), name, s.instead(name)).Set("kernel-config")
}

// have begins a sentence about the sampled records: "the first 3 records have". of is empty, or
// names their file: " of a.jsonl".
func (s sample) have(of string) string {
	if s.records == 1 {
		return "the first record" + of + " has"
	}
	return fmt.Sprintf("the first %d records%s have", s.records, of)
}

// instead ends a sentence about a member that is missing: it suggests another one, or lists all.
func (s sample) instead(name string) string {
	return nearest.Hint(name, s.members, 3, "; the members are "+s.list())
}

// list returns the members for a message.
func (s sample) list() string {
	const shown = 20
	text := strings.Join(s.members[:min(len(s.members), shown)], ", ")
	if len(s.members) > shown {
		text += ", …"
	}
	return text
}

// unquoted are characters in a name that a template cannot contain, or a shell quotes otherwise.
const unquoted = "{}. \t\n\"'\\"
