// Package decode turns the content of an input file into JSON lines: it recognizes the
// compression and the format by content, and has the table of formats.
//
//	file ── gzip, zstd ──► content ── format ──► JSON lines
//
// A file of JSON lines that is not compressed needs no decoding ([Kind.Plain]): workers
// read it directly.
package decode

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Kind is what the content of a file is.
type Kind struct {
	compression *compression // nil for none
	format      format.Format
	members     []format.Member // that the file's place gives to its records
	columns     []format.Column // as far as its beginning shows them
}

// Bytes returns the columns whose values are bytes.
func (k Kind) Bytes() (names []string) {
	for _, c := range k.columns {
		if c.Bytes {
			names = append(names, c.Name)
		}
	}
	return names
}

// Plain reports whether the file consists of JSON lines as it is.
func (k Kind) Plain() bool {
	return k.compression == nil && k.format.Name == jsonl.Name && len(k.members) == 0
}

// Compressed reports whether the file is compressed: it then has checksums of its own.
func (k Kind) Compressed() bool { return k.compression != nil }

// Rows reports whether the numbers of records count rows, not lines.
func (k Kind) Rows() bool { return k.format.Rows }

// Seekable reports whether a reader can begin in the middle of the file.
func (k Kind) Seekable() bool { return k.compression == nil && (k.format.Open != nil || k.Plain()) }

// String describes the kind: "gzip-compressed csv".
func (k Kind) String() string {
	if k.compression == nil {
		return k.format.Name
	}
	return k.compression.name + "-compressed " + k.format.Name
}

// Detect returns the kind of an open file. want is the name of its format, "" to recognize
// it; columns are those that it must have, with the members that its place gives. Content that gpurun does not read is a usage fault.
// An unreadable compressed file has the kind that its first bytes show; reading it returns the
// error.
func Detect(file format.File, want string, columns []string, members ...format.Member) (Kind, error) {
	head, whole, err := readHead(io.NewSectionReader(file, 0, file.Size()))
	if err != nil {
		return Kind{}, fault.InputUnreadable.Of(fault.Usage, "read input %s: %w", file.Name(), err)
	}
	kind := Kind{compression: compressionOf(head), members: members}
	if kind.compression != nil {
		head, whole = kind.compression.head(head)
	}
	if kind.format, err = formatOf(head, whole, want, "input "+file.Name(), file.Name()); err != nil {
		return kind, err
	}
	if kind.compression != nil && kind.format.Stream == nil {
		return kind, fault.UnknownFormat.New("input %s is %s around %s, which cannot be read from the middle of a stream; decompress it first",
			file.Name(), kind.compression.name, kind.format.Name)
	}
	if err := checkColumns(kind.format, columns, "input "+file.Name()); err != nil {
		return kind, err
	}
	if kind.compression == nil {
		if err = kind.check(file, kind.inFile(format.Options{Columns: columns})); err != nil && fault.As(err) == nil {
			err = fault.BadInput.Of(fault.Usage, "input %s: %w", file.Name(), err)
		}
	}
	if kind.format.Columns != nil && err == nil && (kind.format.Open == nil || kind.compression != nil) {
		kind.sampleColumns(io.NewSectionReader(file, 0, file.Size()), columns)
	}
	return kind, err
}

// check finds damage that a quick look can find, and columns that do not exist.
func (k *Kind) check(file format.File, o format.Options) (err error) {
	if k.format.Open != nil {
		var table format.Table
		if table, err = k.format.Open(file, o); err == nil {
			k.columns = table.Columns()
		}
	} else {
		_, err = k.format.Stream(context.Background(), io.NewSectionReader(file, 0, file.Size()), o)
	}
	return columnFault("input "+file.Name(), err)
}

// sampleColumns looks at the first records of a file.
func (k *Kind) sampleColumns(r io.Reader, columns []string) {
	content := io.NopCloser(r)
	if k.compression != nil {
		unpacked, err := k.compression.open(content, 1)
		if err != nil {
			return // which is reported when the content is read
		}
		content = unpacked
	}
	defer content.Close()
	k.findColumns(content, columns)
}

// findColumns finds the columns to read, in their order; all, if columns names none.
func (k *Kind) findColumns(content io.Reader, columns []string) {
	if k.columns = k.format.Columns(content); len(columns) == 0 {
		return
	}
	k.columns = slices.DeleteFunc(k.columns, func(c format.Column) bool { return !slices.Contains(columns, c.Name) })
	slices.SortFunc(k.columns, func(a, b format.Column) int {
		return cmp.Compare(slices.Index(columns, a.Name), slices.Index(columns, b.Name))
	})
}

// checkColumns refuses a choice of columns for JSON lines, which have none.
func checkColumns(f format.Format, columns []string, what string) error {
	if len(columns) == 0 || f.Name != jsonl.Name {
		return nil
	}
	var names []string
	for _, column := range columns {
		name, _, _ := strings.Cut(column, ":")
		names = append(names, name)
	}
	return fault.NoColumns.New("%s is JSON lines, which have no columns to choose", what).Set(strings.Join(names, ","))
}

// readHead reads the first bytes, and reports whether they are all.
func readHead(r io.Reader) (head []byte, whole bool, err error) {
	head = make([]byte, format.SniffBytes)
	n, err := io.ReadFull(r, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return head[:n], true, nil
	}
	return head[:n], false, err
}

// formatOf returns the format of content that begins with head.
func formatOf(head []byte, whole bool, want, what, path string) (format.Format, error) {
	if want != "" {
		return byName(want)
	}
	for _, f := range formats {
		if f.Name != jsonl.Name && f.Match(head, whole) {
			return f, nil
		}
	}
	if isArray(head, whole) {
		return jsonl, oneArray.refuse(what, path)
	}
	if whole {
		head = append(head[:len(head):len(head)], '\n')
	}
	if f := sniff(head); f != nil {
		return jsonl, f.refuse(what, path)
	}
	return byEnding(head, path), nil
}

// byEnding returns the format of a table that is too short to recognize, or whose first bytes are
// damaged, by its file's name: x.csv, x.csv.gz. Everything else is JSON lines.
func byEnding(head []byte, path string) format.Format {
	content := bytes.TrimSpace(head)
	if isText := !slices.Contains(content, 0); len(content) == 0 || isText && (content[0] == '{' || content[0] == '[') {
		return jsonl
	}
	path = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(path), ".gz"), ".zst")
	ending := strings.TrimPrefix(filepath.Ext(path), ".")
	for _, f := range formats {
		if f.Name == ending || slices.Contains(f.Endings, ending) {
			return f
		}
	}
	return jsonl
}

// open opens a file as a table; nil if it is none that can be read at any place.
func (k Kind) open(file format.File, o format.Options) (format.Table, error) {
	if k.compression != nil || k.format.Open == nil {
		return nil, nil
	}
	return k.format.Open(file, k.inFile(o))
}

// Declared returns all columns with their types, if the beginning of the content has them.
func (k Kind) Declared() (list []format.Column, ok bool) {
	return k.columns, k.format.Open != nil && len(k.columns) > 0
}

// Count returns the number of records of a file of a known kind, if that takes no decoding.
func Count(file format.File, kind Kind, options format.Options) (records int64, ok bool, err error) {
	table, err := kind.open(file, options)
	if table == nil || err != nil {
		return 0, err != nil, err
	}
	return table.Count(), true, nil
}

// Columns returns the columns of a file of a known kind with their types; ok is false if its
// format has none.
func Columns(file format.File, kind Kind, options format.Options) (list []format.Column, ok bool, err error) {
	table, err := kind.open(file, options)
	if err != nil {
		return nil, true, err
	}
	if list, ok = kind.Declared(); table != nil {
		list, ok = table.Columns(), true
	}
	if !ok {
		return nil, false, nil
	}
	for _, m := range kind.added(options) {
		if !slices.ContainsFunc(list, func(c format.Column) bool { return c.Name == m.Name }) {
			list = append(list, format.Column{Name: m.Name, Type: m.Type})
		}
	}
	return list, true, nil
}

// Open decodes a file of a known kind. The caller closes the file after the lines.
func Open(ctx context.Context, file format.File, kind Kind, options format.Options) (format.Lines, error) {
	added := kind.added(options)
	if table, err := kind.open(file, options); table != nil || err != nil {
		if err != nil {
			return format.Lines{Rows: kind.Rows}, err
		}
		lines := table.Lines(ctx, options.Skip)
		lines.Rows = kind.Rows
		return withMembers(lines, added), nil
	}
	options = kind.inFile(options)
	content := io.NopCloser(io.Reader(io.NewSectionReader(file, 0, file.Size())))
	if kind.compression != nil {
		var err error
		if content, err = kind.compression.open(content, options.Threads); err != nil {
			return format.Lines{}, err
		}
	}
	lines, err := kind.stream(ctx, content, options)
	return withMembers(lines, added), err
}

// stream decodes content, and closes it with the lines.
func (k Kind) stream(ctx context.Context, content io.ReadCloser, options format.Options) (format.Lines, error) {
	lines, err := k.format.Stream(ctx, content, options)
	if err != nil {
		content.Close()
		return format.Lines{}, err
	}
	lines.Rows = k.Rows
	return lines.AlsoClosing(content), nil
}

// columnFault returns a usage fault for columns that a table does not have; it is not damaged.
func columnFault(what string, err error) error {
	if wrong := new(format.ColumnError); errors.As(err, &wrong) {
		return fault.NoSuchColumn.New("%s: %w", what, err).Set("columns")
	}
	return err
}

// file is an open file on disk.
type file struct {
	*io.SectionReader
	name string
}

func (f *file) Name() string { return f.name }

// File returns an open file as a format reads it: as long as it is now.
func File(opened *os.File, name string, size int64) format.File {
	return &file{io.NewSectionReader(opened, 0, size), name}
}
