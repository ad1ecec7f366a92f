package orchestrator

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/orchestrator/source"
)

const (
	// sampledRecords is how many of the first records of a file are searched for the members
	// that the job needs, in at most sampledBytes.
	sampledRecords = 100
	sampledBytes   = 4 << 20
	// sampledFiles is how many of the first files are searched.
	sampledFiles = 16
)

// customID is the member that names a request in a batch file.
const customID = "custom_id"

// needs returns the members without which a record fails.
func (p *prepared) needs() (names []string) {
	if p.config.Results.Batch && !p.config.Framed { // a retry computes failed ones
		names = append(names, customID)
	}
	if p.plan.Info.NeedsInputs {
		for _, name := range p.reads() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// reads returns the members that the kernel is known to read. A file that the job fetches is
// no member.
func (p *prepared) reads() []string {
	return slices.DeleteFunc(slices.Clone(p.plan.Info.Inputs), func(name string) bool {
		return slices.ContainsFunc(p.config.Fetch.Members, func(m FetchMember) bool { return m.Name == name })
	})
}

// checkMembers rejects a job that needs a member which none of the first records has:
// probably its name is misspelled. A file without it, among others that have it, is noted.
// Streams are checked when their first chunk is cut.
func (p *prepared) checkMembers(ctx context.Context) error {
	needs := p.needs()
	if len(needs)+len(p.config.Output.Keep)+len(p.config.Output.Columns) == 0 {
		return nil
	}
	var all sample
	var samples []sample
	files := p.config.inputs.Files
	for _, file := range files[:min(len(files), sampledFiles)] {
		s := p.sampleFile(ctx, file)
		samples = append(samples, s)
		all.add(s)
	}
	if p.config.inputs.Streams() { // it may have what the files lack
		return nil
	}
	for _, name := range needs {
		if e := all.lacks(name); e != nil {
			return e
		}
	}
	p.noteKept(all)
	for i, s := range samples {
		for _, name := range needs {
			if s.lacks(name) != nil {
				p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s no member %q, which the kernel needs; records without it fail", s.have(" of "+files[i].Name), name))
			}
		}
	}
	return nil
}

// noteKept notes members to keep that none of the first records has: later ones may. A
// column of the output may also be the kernel's, unless it looks misspelled. A retry keeps what
// its job does.
func (p *prepared) noteKept(all sample) {
	if all.records == 0 || p.config.Framed {
		return
	}
	for _, name := range p.config.Output.Keep {
		if !slices.Contains(all.members, name) {
			p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s no member %q to keep; %s", all.have(""), name, all.instead(name)))
		}
	}
	columns := p.config.Results.Named
	for _, name := range columns {
		near := nearest.Of(name, all.members, 3)
		if !slices.Contains(all.members, name) && near != "" && !slices.Contains(columns, near) {
			p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s no column %q; %s", all.have(""), name, all.instead(name)))
		}
	}
}

// lacks describes the first member that the kernel reads and none of the first records has,
// for the message of a job whose records all fail; "" if there is none.
func (p *prepared) lacks() string {
	var all sample
	if first := p.first.Load(); first != nil {
		all.add(*first)
	}
	files := p.config.inputs.Files
	for _, file := range files[:min(len(files), sampledFiles)] {
		all.add(p.sampleFile(context.Background(), file))
	}
	for _, name := range p.reads() {
		if all.records == 0 || slices.Contains(all.members, name) {
			continue
		}
		text := fmt.Sprintf("; the kernel reads %q, and %s %s", name, all.have(""), all.list())
		if near := nearest.Of(name, all.members, 3); near != "" {
			text += "; did you mean " + near + "?"
		}
		return text
	}
	return ""
}

// checkFirst checks the first chunk of a stream as checkMembers checks files.
func (p *prepared) checkFirst(c chunk.Chunk) error {
	needs := p.needs()
	if len(p.reads()) == 0 && len(needs) == 0 || !p.config.inputs.Streams() || p.earlier.resumes {
		return nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil //nolint:nilerr // a worker reports it
	}
	defer file.Close()
	s := sampleMembers(io.NewSectionReader(file, c.Offset, min(c.Length, sampledBytes)))
	p.first.Store(&s)
	for _, name := range needs {
		if e := s.lacks(name); e != nil {
			return e
		}
	}
	return nil
}

// sampleFile reads the first records of a file. What cannot be read is reported when the job
// reads it.
func (p *prepared) sampleFile(ctx context.Context, file source.File) sample {
	if file.Stream() {
		return sample{}
	}
	lines, err := file.Lines(ctx, format.Options{Columns: p.config.Input.Columns, Threads: 1})
	if err != nil {
		return sample{}
	}
	defer lines.Close()
	return sampleMembers(io.LimitReader(lines, sampledBytes))
}

// sample is what the first records of an input have.
type sample struct {
	members []string
	records int
	texts   map[string]amount // of the strings in a member
}

// amount is how much text there is.
type amount struct{ words, bytes int }

// sampleMembers reads the first records.
func sampleMembers(r io.Reader) (s sample) {
	lines := bufio.NewReader(r)
	for range sampledRecords {
		line, err := lines.ReadBytes('\n')
		var members map[string]json.RawMessage
		// The last line may lack its end because the sample does. The kernel sees no line that is
		// not UTF-8.
		if utf8.Valid(line) && json.Unmarshal(line, &members) == nil && members != nil && isUnmarked(members[errorMember]) {
			s.add(sampleRecord(members))
		}
		if err != nil {
			break
		}
	}
	return s
}

// isUnmarked reports whether the value of _error is that of a record that has not failed.
func isUnmarked(value json.RawMessage) bool { return value == nil || string(value) == "null" }

// sampleRecord is the sample of one record.
func sampleRecord(members map[string]json.RawMessage) sample {
	s := sample{records: 1, members: slices.Sorted(maps.Keys(members)), texts: make(map[string]amount)}
	for name, value := range members {
		var text string
		if json.Unmarshal(value, &text) == nil {
			s.texts[name] = amount{len(strings.Fields(text)), len(text)}
		}
	}
	return s
}

func (s *sample) add(other sample) {
	s.records += other.records
	if s.texts == nil {
		s.texts = make(map[string]amount)
	}
	for name, one := range other.texts {
		sum := s.texts[name]
		s.texts[name] = amount{sum.words + one.words, sum.bytes + one.bytes}
	}
	for _, name := range other.members {
		if !slices.Contains(s.members, name) {
			s.members = append(s.members, name)
		}
	}
}

// lacks returns an error if there are records, and none has the member.
func (s sample) lacks(name string) error {
	if s.records == 0 || slices.Contains(s.members, name) {
		return nil
	}
	if name == customID {
		return fault.NoRequests.New("%s no custom_id: the input is not a batch file", s.have("")).Set(s.likeliestText())
	}
	return fault.KernelUnsuited.New("%s no member %q, which the kernel needs; %s", s.have(""), name, s.instead(name)).Set("kernel-config")
}

// have begins a sentence about the sampled records: "the first 3 records have". of is empty, or
// names their file: " of a.jsonl".
func (s sample) have(of string) string {
	if s.records == 1 {
		return "the first record" + of + " has"
	}
	return fmt.Sprintf("the first %d records%s have", s.records, of)
}

// instead suggests a member for one that is missing, or lists all.
func (s sample) instead(name string) string {
	if near := nearest.Of(name, s.members, 3); near != "" {
		return "did you mean " + near + "?"
	}
	return "the members are " + s.list()
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

// likeliestText returns the member to ask a model about: the one with the most words. Where
// words are not separated, the longest.
func (s sample) likeliestText() string {
	best := ""
	for _, name := range s.members {
		a, b := s.texts[name], s.texts[best]
		if strings.ContainsAny(name, "{}. \t\n\"'\\") { // a template cannot name it, or a shell quotes it otherwise
			continue
		}
		if best == "" || cmp.Or(cmp.Compare(a.words, b.words), cmp.Compare(a.bytes, b.bytes)) > 0 {
			best = name
		}
	}
	return cmp.Or(best, "text")
}
