// Package webdataset reads tar archives in the manner of WebDataset: consecutive files whose names
// are equal up to the first dot are a record.
//
//	0001.jpg  0001.json  0001.cls  0002.jpg …
//
// Members are named by what follows the dot. Those of .json, .txt and .cls become values of the
// line, all others are bytes beside it. __key__ is the name up to the dot.
//
// Archives come from elsewhere. Nothing is extracted; a record with a name that leaves the archive's
// folder is rejected, and so is one that is too large to hold in memory.
package webdataset

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// Tar is the format of tar archives.
var Tar = format.Format{
	Name: "tar", Rows: true, Match: match, Columns: findBytes,
	Stream: func(_ context.Context, r io.Reader, o format.Options) (format.Lines, error) {
		l := newLines(r, o)
		lines := format.Lines{ReadCloser: l, First: 1}
		if o.Bytes != nil && len(o.Bytes.Beside) > 0 {
			lines.Blobs = l.blobs.Next
		}
		return lines, nil
	},
}

// keyMember is the member with the name that the files of a record share.
const keyMember = "__key__"

const (
	// magicAt is where the header of the first file names the format.
	magicAt    = 257
	blockBytes = 512
	// maxMembers limits the files of a record.
	maxMembers = 1000
	// sampled is how many records are searched for members that are bytes, in about sampledBytes.
	sampled      = 100
	sampledBytes = 64 << 20
)

// maxRecord limits the files of a record together. It is a variable so that tests can lower it.
var maxRecord int64 = 512 << 20

// data are the endings of files that are records themselves, which an archive only holds together.
var data = []string{".jsonl", ".ndjson", ".csv", ".tsv", ".gz", ".zst", ".parquet", ".arrow"}

func match(head []byte, _ bool) bool {
	if len(head) < blockBytes || !bytes.HasPrefix(head[magicAt:], []byte("ustar")) {
		return false
	}
	name, _, _ := strings.Cut(strings.ToLower(string(head[:100])), "\x00")
	return !slices.ContainsFunc(data, func(end string) bool { return strings.HasSuffix(name, end) })
}

// findBytes returns the members of the first records that are bytes.
func findBytes(r io.Reader) (list []format.Column) {
	l := newLines(io.LimitReader(r, sampledBytes), format.Options{})
	l.namesOnly = true
	for range sampled {
		one, err := l.record()
		for _, m := range one.members {
			if c := (format.Column{Name: m.name, Bytes: true}); !isText(m.name) && !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
		if err != nil {
			break
		}
	}
	return list
}

// isText reports whether a member becomes a value of the line.
func isText(name string) bool {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "json", "txt", "cls":
		return true
	}
	return false
}

// lines are the records of an archive as JSON lines.
type lines struct {
	in        *endReader
	tar       *tar.Reader
	options   format.Options
	next      *tar.Header // of a file that begins the next record
	err       error       // that ended the archive
	namesOnly bool
	blobs     format.BlobQueue
	format.Blocks
}

func newLines(r io.Reader, o format.Options) *lines {
	in := &endReader{from: r}
	l := &lines{in: in, tar: tar.NewReader(in), options: o}
	l.Next = l.line
	return l
}

func (l *lines) Close() error { return nil }

// files are what a record consists of.
type files struct {
	key     string
	members []member
	size    int64
	bad     string // why the record is rejected
}

type member struct {
	name string
	data []byte
}

// line returns the line of the next record.
func (l *lines) line() ([]byte, error) {
	one, err := l.record()
	if err != nil && !errors.Is(err, io.EOF) || one.key == "" {
		return nil, err
	}
	line, blobs := one.encode(l.options)
	if len(blobs) > 0 {
		l.blobs.Add(blobs)
	}
	return line, nil
}

// record returns the files of the next record. At the end, it has no key, and the error is io.EOF.
func (l *lines) record() (one files, err error) {
	for {
		h := l.next
		if l.next = nil; h == nil {
			if l.err != nil {
				return one, l.err
			}
			l.in.zeros = 0
			if h, err = l.tar.Next(); err != nil {
				l.err = l.ended(err)
				return one, l.err
			}
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
			continue
		}
		key, name := split(h.Name)
		switch {
		case name == "" || key == "": // a file without an ending, or a hidden one
			continue
		case one.key != "" && one.key != key:
			l.next = h
			return one, nil
		}
		one.key = key
		if err := l.add(&one, name, h); err != nil {
			l.err = l.ended(err)
			return files{}, l.err
		}
	}
}

// ended returns the error of an archive that ends here: io.EOF if it is complete.
func (l *lines) ended(err error) error {
	switch {
	case errors.Is(err, io.EOF) && (l.in.zeros >= blockBytes || l.namesOnly):
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("truncated tar archive")
	case errors.Is(err, tar.ErrHeader):
		return errors.New("damaged tar archive: a file's header is not valid")
	}
	return err
}

// split returns the name of a file up to the first dot of its last part, and what follows the dot.
func split(name string) (key, member string) {
	folder, file := path.Split(name)
	stem, member, _ := strings.Cut(file, ".")
	if stem == "" {
		return "", ""
	}
	return strings.ToValidUTF8(folder+stem, "\uFFFD"), strings.ToLower(strings.ToValidUTF8(member, "\uFFFD"))
}

// add reads a file of the record.
func (l *lines) add(to *files, name string, h *tar.Header) error {
	same := func(m member) bool { return m.name == name }
	switch {
	case to.bad != "":
	case !isLocal(to.key):
		to.reject("the name %q leaves the folder of the archive", to.key)
	case slices.ContainsFunc(to.members, same):
		to.reject("the record has two files %q", name)
	case len(to.members) == maxMembers:
		to.reject("the record has more than %d files", maxMembers)
	case h.Size > maxRecord-to.size:
		to.reject("the files of the record have more than %d MiB together", maxRecord>>20)
	default:
		m := member{name: name}
		if !l.namesOnly {
			var buffer bytes.Buffer // which grows with what is there, not with what the header promises
			if _, err := io.Copy(&buffer, l.tar); err != nil {
				return err
			}
			m.data = buffer.Bytes()
		}
		to.size += int64(len(m.data))
		to.members = append(to.members, m)
	}
	return nil
}

// isLocal reports whether a name stays below the folder that an archive would be extracted to.
func isLocal(name string) bool {
	return !path.IsAbs(name) && !slices.Contains(strings.Split(name, "/"), "..")
}

// reject marks the record as one that cannot be computed. Its files are not kept.
func (f *files) reject(format string, args ...any) {
	if f.bad == "" {
		f.bad = fmt.Sprintf(format, args...)
	}
	f.members, f.size = nil, 0
}

// encode returns the line of the record, and the values beside it.
func (f *files) encode(o format.Options) (line []byte, blobs []format.Blob) {
	if o.Bytes != nil {
		blobs = make([]format.Blob, len(o.Bytes.Beside))
	}
	line = append(line, '{')
	add := func(name string, value func(dst []byte) []byte) {
		if !wanted(o, name) {
			return
		}
		if len(line) > 1 {
			line = append(line, ',')
		}
		line = value(append(jsonline.AppendString(line, name), ':'))
	}
	add(keyMember, func(dst []byte) []byte { return jsonline.AppendString(dst, f.key) })
	for _, m := range f.members {
		if isText(m.name) {
			add(m.name, func(dst []byte) []byte { return f.text(dst, m) })
			continue
		}
		beside, inline := o.Bytes.Place(m.name)
		if beside >= 0 {
			blobs[beside] = format.Blob{Kind: format.BytesBlob, Data: m.data}
		}
		if inline {
			add(m.name, func(dst []byte) []byte { return jsonline.AppendBase64(dst, m.data) })
		}
	}
	if f.bad != "" {
		if len(line) > 1 {
			line = append(line, ',')
		}
		line = record.AppendRejection(append(line, `"_error":`...), f.bad)
		clear(blobs)
	}
	return append(line, '}', '\n'), blobs
}

// wanted reports whether the job needs a member.
func wanted(o format.Options, name string) bool {
	return (len(o.Columns) == 0 || slices.Contains(o.Columns, name)) && (o.Members == nil || slices.Contains(o.Members, name))
}

// text appends the value of a file that is text: JSON as it is, a class as a number.
func (f *files) text(dst []byte, m member) []byte {
	trimmed := bytes.TrimSpace(m.data)
	switch ending := m.name[strings.LastIndexByte(m.name, '.')+1:]; {
	case !utf8.Valid(m.data):
		f.rejectText("%s of %s is not valid UTF-8", m.name, f.key)
		return append(dst, "null"...)
	case ending == "json" && !jsonline.Valid(trimmed):
		f.rejectText("%s of %s is not valid JSON", m.name, f.key)
		return append(dst, "null"...)
	case ending == "json":
		return jsonline.AppendOnLine(dst, trimmed)
	case ending == "cls":
		if n, err := strconv.ParseInt(string(trimmed), 10, 64); err == nil {
			return strconv.AppendInt(dst, n, 10)
		}
		return jsonline.AppendString(dst, trimmed)
	}
	return jsonline.AppendString(dst, m.data)
}

// rejectText rejects the record for a file that is not text.
func (f *files) rejectText(format string, args ...any) {
	if f.bad == "" {
		f.bad = fmt.Sprintf(format, args...)
	}
}

// endReader counts the zeros at the end of what was read. Every archive ends with blocks of them: one
// that was cut off between two files looks complete otherwise.
type endReader struct {
	from  io.Reader
	zeros int
}

func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if rest := len(bytes.TrimRight(p[:n], "\x00")); rest > 0 {
		e.zeros = n - rest
	} else {
		e.zeros += n
	}
	return n, err
}
