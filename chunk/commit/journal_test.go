package commit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// story is a journal with every kind of entry: segments out of order, durable points, a
// part that was lost and recomputed.
func story() []Entry {
	segment := func(first, records int64, part string) Entry {
		return Entry{Segment: &chunk.Segment{
			First: first, Start: chunk.Place{Offset: first * 10, Line: first + 1}, Next: chunk.Place{Offset: (first + records) * 10, Line: first + records + 1},
			Part: part, Files: [chunk.PartFiles]chunk.FileSum{{Bytes: records * 7, CRC: uint32(first)}, {}, {Bytes: records, CRC: 0xffffffff}},
			Tally: chunk.Tally{Counts: chunk.Counts{Records: records, Succeeded: records - 1, Failed: 1}, Kinds: map[string]chunk.KindStats{
				"record": {Count: 1, Example: "bad \n\"<é", Detail: "a\n\tb", Line: first + 1},
			}},
		}}
	}
	durable := func(next, segments int64) *Durable {
		return &Durable{
			Next: next, Place: chunk.Place{Offset: next * 10, Line: next + 1}, Sizes: [chunk.PartFiles]int64{next * 7, 0, next},
			Tally: chunk.Tally{Counts: chunk.Counts{Records: next, Succeeded: next - segments, Failed: segments}},
		}
	}
	return []Entry{
		segment(0, 10, "a"), segment(20, 5, "b"), {Durable: durable(10, 1)},
		{Drop: &Drop{First: 20, Part: "b"}}, segment(10, 10, "c"), segment(20, 6, "d"),
		{Durable: durable(20, 2)}, segment(26, 4, "e"),
	}
}

// journalBytes returns a journal of entries and where each begins; the last offset is the
// end of the journal.
func journalBytes(t testing.TB, entries []Entry) (data []byte, starts []int) {
	t.Helper()
	data = journalHeader()
	for _, e := range entries {
		starts = append(starts, len(data))
		line, err := chunk.AppendLine(nil, e)
		chunktest.Must(t, err)
		data = append(data, line...)
	}
	return data, append(starts, len(data))
}

func writeJournal(t testing.TB, data []byte) string {
	t.Helper()
	return chunktest.Write(t, filepath.Join(t.TempDir(), "journal"), data)
}

// checkRepaired checks that the journal opens with these entries, accepts another, and
// opens with that one as well.
func checkRepaired(t *testing.T, path string, want []Entry) {
	t.Helper()
	read, err := ReadJournal(path)
	chunktest.Must(t, err)
	if diff := cmp.Diff(want, read, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("read: %s", diff)
	}
	j, got, err := OpenJournal(path)
	chunktest.Must(t, err)
	defer j.Close()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("opened: %s", diff)
	}
	next := Entry{Drop: &Drop{First: 99, Part: "z"}}
	chunktest.Must(t, j.Append(next))
	again, err := ReadJournal(path)
	chunktest.Must(t, err)
	if diff := cmp.Diff(append(want[:len(want):len(want)], next), again, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("appended to: %s", diff)
	}
}

// checkRefused checks that every reader reports damage at this byte and leaves the journal
// unchanged.
func checkRefused(t *testing.T, data []byte, offset int) {
	t.Helper()
	path := writeJournal(t, data)
	_, readErr := ReadJournal(path)
	_, _, openErr := OpenJournal(path)
	for _, err := range []error{readErr, openErr} {
		chunktest.WantKind(t, err, fault.Conflict)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("error %v is not a CorruptError", err)
		}
		if corrupt.Offset != int64(offset) || corrupt.Path != path || corrupt.Reason == "" {
			t.Errorf("%+v, want offset %d", corrupt, offset)
		}
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(data, after) {
		t.Error("it was changed")
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := CreateJournal(path)
	chunktest.Must(t, err)
	entries := story()
	for _, e := range entries {
		chunktest.Must(t, j.Append(e))
	}
	chunktest.Must(t, j.Sync())
	chunktest.Must(t, j.Close())
	want, _ := journalBytes(t, entries)
	if got, _ := os.ReadFile(path); !bytes.Equal(want, got) {
		t.Errorf("the file is %s", got)
	}
	checkRepaired(t, path, entries)
	// Creating it again discards everything.
	j, err = CreateJournal(path)
	chunktest.Must(t, err)
	chunktest.Must(t, j.Close())
	checkRepaired(t, path, nil)
	if got := chunktest.Files(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("files left: %v", got)
	}
}

// TestJournalTorn: wherever the writer was cut off in its last line, the lines before are
// kept, and the journal can be appended to.
func TestJournalTorn(t *testing.T) {
	entries := story()
	data, starts := journalBytes(t, entries)
	last := len(entries) - 1
	path := filepath.Join(t.TempDir(), "journal")
	for size := starts[last]; size < len(data); size++ {
		got, good, _, err := readLines(bytes.NewReader(data[:size]), "journal")
		if err != nil || len(got) != last || good != int64(starts[last]) {
			t.Errorf("cut at %d: %d entries, %d bytes are good: %v", size, len(got), good, err)
		}
		if size%16 == 0 || size == starts[last] || size == len(data)-1 {
			chunktest.Write(t, path, data[:size])
			checkRepaired(t, path, entries[:last])
		}
	}
	for size := range starts[0] { // the header was durable before anything else
		checkRefused(t, data[:size], 0)
	}
}

// TestJournalFlipped: a flipped bit before a durable point is damage; after the last one,
// the journal ends before it.
func TestJournalFlipped(t *testing.T) {
	entries := story()
	data, starts := journalBytes(t, entries)
	flip := func(at, bit int) []byte {
		damaged := bytes.Clone(data)
		damaged[at] ^= 1 << bit
		return damaged
	}
	last := len(entries) - 1
	const lastPoint = 6
	for _, line := range []int{0, 3, lastPoint, last} { // a segment, a drop, a durable point
		for at := starts[line]; at < starts[line+1]; at++ {
			bit := at % 8
			got, good, lost, err := readLines(bytes.NewReader(flip(at, bit)), "journal")
			var corrupt *CorruptError
			switch {
			case line >= lastPoint && (err != nil || good != int64(starts[line]) || len(got) != line || lost != last-line):
				t.Errorf("line %d, byte %d, bit %d: %d entries, %d bytes are good, %d lines lost: %v", line, at, bit, len(got), good, lost, err)
			case line >= lastPoint:
			case fault.KindOf(err) != fault.Conflict || !errors.As(err, &corrupt) || corrupt.Offset != int64(starts[line]):
				t.Errorf("line %d, byte %d, bit %d: %v", line, at, bit, err)
			}
		}
		if line >= lastPoint {
			checkRepaired(t, writeJournal(t, flip(starts[line]+20, 3)), entries[:line])
		} else {
			checkRefused(t, flip(starts[line]+20, 3), starts[line])
		}
	}
	for at := range starts[0] {
		if _, _, _, err := readLines(bytes.NewReader(flip(at, at%8)), "journal"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("byte %d of the header: %v", at, err)
		}
	}
}

// TestJournalGapAfterDurablePoint: a page of the unsynced tail that never reached the disk,
// followed by intact lines, costs those lines and nothing before them.
func TestJournalGapAfterDurablePoint(t *testing.T) {
	entries := append(story(), story()[1]) // two segments after the last durable point
	entries[8].Segment = &chunk.Segment{First: 30, Next: chunk.Place{Offset: 310, Line: 32}, Part: "f", Tally: chunk.Tally{Counts: chunk.Counts{Records: 1, Succeeded: 1}}}
	data, starts := journalBytes(t, entries)
	clear(data[starts[7]+3 : starts[8]-2])
	path := writeJournal(t, data)
	j, got, err := OpenJournal(path)
	chunktest.Must(t, err)
	defer j.Close()
	if j.Lost() != 1 || len(got) != 7 {
		t.Errorf("%d lines lost, %d kept", j.Lost(), len(got))
	}
	state, err := Replay(got)
	chunktest.Must(t, err)
	if state.Durable.Next != 20 {
		t.Errorf("resumes at record %d", state.Durable.Next)
	}
	clear(data[starts[4]+3 : starts[5]-2])
	checkRefused(t, data, starts[4])
}

// TestJournalDamage covers other kinds of damage.
func TestJournalDamage(t *testing.T) {
	entries := story()
	data, starts := journalBytes(t, entries)
	n := len(entries)
	end := len(data)
	cut := func(from, to int) []byte { return append(bytes.Clone(data[:from]), data[to:]...) }
	with := func(at int, more string) []byte {
		return append(append(bytes.Clone(data[:at]), more...), data[at:]...)
	}
	line := func(payload string) string {
		return fmt.Sprintf("%08x %s\n", sums(map[string]string{".out": payload}, "")[chunk.Results].CRC, payload)
	}
	capitals := append(append(bytes.Clone(data[:starts[3]]), bytes.ToUpper(data[starts[3]:starts[3]+8])...), data[starts[3]+8:]...)
	for name, c := range map[string]struct {
		data    []byte
		keep    int // entries
		refused int // at this byte; -1: accepted
	}{
		"whole":                 {data, n, -1},
		"header only":           {data[:starts[0]], 0, -1},
		"emptied":               {nil, 0, 0},
		"one newline":           {[]byte("\n"), 0, 0},
		"zeroes":                {make([]byte, 4096), 0, 0},
		"header missing":        {data[starts[0]:], 0, 0},
		"header twice":          {append(bytes.Clone(data[:starts[0]]), data...), 0, starts[0]},
		"another version":       {bytes.Replace(data, []byte(" 1\n"), []byte(" 3\n"), 1), 0, len(journalMagic)},
		"version like ours":     {bytes.Replace(data, []byte(" 1\n"), []byte(" 01\n"), 1), 0, len(journalMagic)},
		"no version":            {bytes.Replace(data, []byte(" 1\n"), []byte(" \n"), 1), 0, len(journalMagic)},
		"line feeds of Windows": {bytes.ReplaceAll(data, newline, []byte("\r\n")), 0, len(journalMagic)},
		"text after":            {with(end, "hello\nworld\n"), n, -1},
		"text without end":      {with(end, "hello"), n, -1},
		"newlines after":        {with(end, "\n\n\n"), n, -1},
		"binary after":          {with(end, "\x00\xff\x7fELF\n\n\x80 {}\n"), n, -1},
		"page of zeroes after":  {with(end, strings.Repeat("\x00", 4096)), n, -1},
		"tail zeroed":           {append(bytes.Clone(data[:starts[n-1]+30]), make([]byte, 4096)...), n - 1, -1},
		"tails zeroed":          {append(bytes.Clone(data[:starts[n-3]+30]), make([]byte, 4096)...), n - 3, -1},
		"zeroes in the middle":  {with(starts[3], strings.Repeat("\x00", 4096)), 0, starts[3]},
		"text in the middle":    {with(starts[3], "hello\nworld\n"), 0, starts[3]},
		"newline in the middle": {with(starts[3], "\n"), 0, starts[3]},
		"line cut in two":       {with(starts[3]+20, "\n"), 0, starts[3]},
		"page lost":             {cut(starts[2]+20, starts[4]+20), 0, starts[2]},
		"torn and appended to":  {cut(starts[3]+20, starts[4]), 0, starts[3]},
		"empty entry":           {with(starts[3], line(`{}`)), 0, starts[3]},
		"unknown entry":         {with(starts[3], line(`{"future":{}}`)), 0, starts[3]},
		"null":                  {with(starts[3], line(`{"segment":null}`)), 0, starts[3]},
		"two entries":           {with(starts[3], line(`{"drop":{},"durable":{}}`)), 0, starts[3]},
		"no JSON":               {with(starts[3], line(`segment`)), 0, starts[3]},
		"wrong type":            {with(starts[3], line(`{"segment":{"first":"0"}}`)), 0, starts[3]},
		"checksum in capitals":  {capitals, 0, starts[3]},
	} {
		t.Run(name, func(t *testing.T) {
			if c.refused >= 0 {
				checkRefused(t, c.data, c.refused)
				return
			}
			checkRepaired(t, writeJournal(t, c.data), entries[:c.keep])
		})
	}
}

// TestJournalDoubled: a repeated line changes nothing, directly after itself or at the end.
func TestJournalDoubled(t *testing.T) {
	entries := story()
	want, err := Replay(entries)
	chunktest.Must(t, err)
	for i, e := range entries {
		next := append(append(append([]Entry{}, entries[:i+1]...), e), entries[i+1:]...)
		data, _ := journalBytes(t, next)
		read, _, _, err := readLines(bytes.NewReader(data), "journal")
		chunktest.Must(t, err)
		for name, doubled := range map[string][]Entry{"next": read, "last": append(entries[:len(entries):len(entries)], e)} {
			if name == "last" && e.Segment != nil && e.Segment.Part == "b" {
				continue // it was dropped in between and replaced by another
			}
			got, err := Replay(doubled)
			chunktest.Must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("line %d, %s: %s", i, name, diff)
			}
		}
	}
}

func TestOpenJournalFails(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"missing": filepath.Join(dir, "none"), "a folder": dir} {
		_, _, err := OpenJournal(path)
		chunktest.WantKind(t, err, fault.Conflict)
		if _, err = ReadJournal(path); err == nil {
			t.Errorf("%s: no error", name)
		}
		chunktest.WantKind(t, err, fault.Conflict)
	}
	_, err := CreateJournal(filepath.Join(dir, "none", "journal"))
	chunktest.WantKind(t, err, fault.Storage)
}

// TestJournalWhileWritten: a reader sees a prefix of what is written, never damage.
func TestJournalWhileWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := CreateJournal(path)
	chunktest.Must(t, err)
	defer j.Close()
	const n = 2000
	entry := func(i int) Entry {
		return Entry{Drop: &Drop{First: int64(i), Part: strings.Repeat("x", i%600)}}
	}
	written := make(chan error, 1)
	go func() {
		for i := range n {
			if err := j.Append(entry(i)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for seen, done := 0, false; !done; {
		select {
		case err := <-written:
			chunktest.Must(t, err)
			done = true
		default:
		}
		entries, err := ReadJournal(path)
		chunktest.Must(t, err)
		if len(entries) < seen || done && len(entries) != n {
			t.Fatalf("%d entries after %d", len(entries), seen)
		}
		for i := seen; i < len(entries); i++ {
			if *entries[i].Drop != *entry(i).Drop {
				t.Fatalf("entry %d is %+v", i, entries[i].Drop)
			}
		}
		seen = len(entries)
	}
}

// TestJournalFull: on a full disk a line may be written in part. That must not become
// damage once there is space again.
func TestJournalFull(t *testing.T) {
	dir := chunktest.TinyDisk(t)
	filler := chunktest.Write(t, filepath.Join(dir, "filler"), make([]byte, 40<<10))
	path := filepath.Join(dir, "journal")
	j, err := CreateJournal(path)
	chunktest.Must(t, err)
	defer j.Close()
	var want []Entry
	appendUntilFull := func() {
		for i := 0; ; i++ {
			e := Entry{Drop: &Drop{First: int64(len(want)), Part: strings.Repeat("x", 700+i%300)}}
			err := j.Append(e)
			if err != nil {
				chunktest.WantKind(t, err, fault.Storage)
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("error %v does not say that the disk is full", err)
				}
				return
			}
			want = append(want, e)
		}
	}
	appendUntilFull()
	chunktest.Must(t, os.Remove(filler))
	before := len(want)
	appendUntilFull()
	if before < 10 || len(want) < before+10 {
		t.Errorf("%d entries fit, then %d", before, len(want))
	}
	got, err := ReadJournal(path)
	chunktest.Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSyncFailsForGood: after a failed sync the next one would succeed without the data
// that was to be written.
func TestSyncFailsForGood(t *testing.T) {
	j, err := CreateJournal(filepath.Join(t.TempDir(), "journal"))
	chunktest.Must(t, err)
	whole := j.file
	defer whole.Close()
	closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	chunktest.Must(t, err)
	chunktest.Must(t, closed.Close())
	j.file = closed
	chunktest.WantKind(t, j.Sync(), fault.Storage)
	j.file = whole
	chunktest.WantKind(t, j.Sync(), fault.Storage)
	chunktest.WantKind(t, j.Append(story()[0]), fault.Storage)

	target := target{temporary: "x", file: closed}
	chunktest.WantKind(t, target.sync(), fault.Storage)
	target.file = whole
	chunktest.WantKind(t, target.sync(), fault.Storage)
}

// payloads is a journal without header and checksums; summed adds them again.
func payloads(journal []byte) []byte {
	var all []byte
	for _, line := range bytes.SplitAfter(journal, newline)[1:] {
		all = append(all, line[min(9, len(line)):]...)
	}
	return all
}

func summed(payloads []byte) []byte {
	all := journalHeader()
	for _, line := range bytes.Split(payloads, newline) {
		all = fmt.Appendf(all, "%s %s\n", chunk.Checksum(line), line)
	}
	return all
}

// FuzzJournal: no input makes the reader panic. What it accepts, it reads again from the
// intact prefix and from a journal with the same entries.
func FuzzJournal(f *testing.F) {
	data, starts := journalBytes(f, story())
	f.Add(data, false)
	f.Add(data[:starts[3]+5], false)
	f.Add([]byte{}, false)
	f.Add(payloads(data), true)
	for _, e := range story() {
		line, _ := journalBytes(f, []Entry{e})
		f.Add(payloads(line), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, sum bool) {
		if sum { // otherwise hardly any line would be valid
			data = summed(data)
		}
		entries, good, _, err := readLines(bytes.NewReader(data), "journal")
		if err != nil {
			var corrupt *CorruptError
			if fault.KindOf(err) != fault.Conflict || !errors.As(err, &corrupt) {
				t.Fatalf("error %v", err)
			}
			return
		}
		again, same, _, err := readLines(bytes.NewReader(data[:good]), "journal")
		chunktest.Must(t, err)
		if diff := cmp.Diff(entries, again); diff != "" || same != good {
			t.Fatalf("of %d bytes %d are good, of those %d: %s", len(data), good, same, diff)
		}
		written, _ := journalBytes(t, entries)
		again, good, _, err = readLines(bytes.NewReader(written), "journal")
		chunktest.Must(t, err)
		if diff := cmp.Diff(entries, again, cmpopts.EquateEmpty()); diff != "" || good != int64(len(written)) {
			t.Fatalf("written again: %d of %d bytes are good: %s", good, len(written), diff)
		}
		state, err := Replay(entries)
		if err != nil {
			chunktest.WantKind(t, err, fault.Conflict)
			return
		}
		state.Done()
		state.Remaining([]chunk.Chunk{{Length: 100, Records: 10, Line: 1}, {Offset: 100, Length: 50, First: 10, Records: 5, Line: 11}})
	})
}
